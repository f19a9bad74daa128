#include "gemm_tile.h"

namespace kvroll::KVROLL_ISA {
namespace {

struct Int8Weights {
  static constexpr int kRows = kMaxRows;
  using Element = std::int8_t;

  template <int J, int R, int T>
  static inline void add_input(const Bytes32 (&bytes)[2], const float* x, std::int64_t inputs, int t,
                               Block<R, T>& block) {
    const Vec8 low = widen<J>(bytes[0]), high = widen<J>(bytes[1]);
    for (int r = 0; r < R; ++r) {
      const Vec8 value = splat(x[r * inputs + J]);
      block.sum[r][t][0] = fma(low, value, block.sum[r][t][0]);
      block.sum[r][t][1] = fma(high, value, block.sum[r][t][1]);
    }
  }

  // 64 bytes hold 16 outputs x 4 inputs; the last ones may be fewer than four.
  template <int R, int T>
  static inline void add_inputs(const Element* from, const float* x, std::int64_t inputs, std::int64_t count, int t,
                                Block<R, T>& block) {
    const Bytes32 bytes[2] = {load_bytes32(from), load_bytes32(from + 32)};
    add_input<0>(bytes, x, inputs, t, block);
    if (count > 1) add_input<1>(bytes, x, inputs, t, block);
    if (count > 2) add_input<2>(bytes, x, inputs, t, block);
    if (count > 3) add_input<3>(bytes, x, inputs, t, block);
  }

  template <int R, int T>
  static inline void accumulate(const Element* packed, std::int64_t stride, const float* x, const float*,
                                std::int64_t inputs, Block<R, T>& block) {
    std::int64_t k = 0;
    for (; k + 4 <= inputs; k += 4)
      for (int t = 0; t < T; ++t) {
        const Element* from = packed + t * stride + k * kTileOutputs;
        prefetch(from + kPrefetchBytes);
        add_inputs<R, T>(from, x + k, inputs, 4, t, block);
      }
    if (k < inputs)
      for (int t = 0; t < T; ++t)
        add_inputs<R, T>(packed + t * stride + k * kTileOutputs, x + k, inputs, inputs - k, t, block);
  }
};

}  // namespace

void gemm_int8(const GemmCall& call, Pool& pool) { run_gemm<Int8Weights>(call, pool); }

}  // namespace kvroll::KVROLL_ISA
