#include "gemm_nibbles.h"

namespace kvroll::KVROLL_ISA {
namespace {

// w = scale * q + zero, q in 0 .. 15: the sum of a block is scale * sum(q x) + zero * sum(x).
template <std::int64_t N>
struct Int4Weights {
  static constexpr std::int64_t kBlock = N;
  static constexpr std::int64_t kScaleBytes = kTileOutputs * 4;

  static inline Vec8 value(Words8 words) { return float_of_nibble(words); }
  static inline Vec8 join(const std::uint8_t* scales, int half, Vec8 sum, const float* x_sum, Vec8 total) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(scales);
    Vec8 scale[2], zero[2];
    load_fp16x16(from, scale[0], scale[1]);
    load_fp16x16(from + kTileOutputs, zero[0], zero[1]);
    return fma(scale[half], sum, fma(zero[half], splat(*x_sum), total));
  }
};

// The sum of each block of a row, in an order of its own that no other row changes.
inline void sum_blocks(const GemmCall& call, std::int64_t row) {
  const std::int64_t inputs = call.weight.inputs, blocks = call.weight.block_count(), block = call.weight.block;
  const float* x = call.x + row * inputs;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t end = inputs < (b + 1) * block ? inputs : (b + 1) * block;
    Vec8 lanes = zeros();
    std::int64_t k = b * block;
    for (; k + 8 <= end; k += 8) lanes = add(lanes, load(x + k));
    float sum = sum_lanes(lanes);
    for (; k < end; ++k) sum += x[k];
    call.block_sums[row * blocks + b] = sum;
  }
}

}  // namespace

void gemm_int4(const GemmCall& call, Pool& pool) {
  for (std::int64_t row = 0; row < call.rows; ++row) sum_blocks(call, row);
  if (call.weight.block == 32) return run_gemm<Nibbles<Int4Weights<32>>>(call, pool);
  if (call.weight.block == 128) return run_gemm<Nibbles<Int4Weights<128>>>(call, pool);
  run_gemm<Nibbles<Int4Weights<64>>>(call, pool);
}

}  // namespace kvroll::KVROLL_ISA
