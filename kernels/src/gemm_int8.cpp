#include "gemm_tile.h"

namespace kvroll::KVROLL_ISA {
namespace {

struct Int8Weights {
  using Element = std::int8_t;

  // 16 bytes hold 16 outputs of one k, widened to fp32 in registers; the channel's scale multiplies the finished sum.
  template <int R, int T>
  static inline void accumulate(const Element* packed, std::int64_t stride, const float* x, std::int64_t inputs,
                                Block<R, T>& block) {
    for (std::int64_t k = 0; k < inputs; ++k) {
      for (int t = 0; t < T; ++t) {
        const Element* from = packed + t * stride + k * kTileOutputs;
        if (k % 4 == 0) prefetch(from + kPrefetchBytes);
        Vec8 low, high;
        load_int8x16(from, low, high);
        for (int r = 0; r < R; ++r) {
          const Vec8 value = splat(x[r * inputs + k]);
          block.sum[r][t][0] = fma(low, value, block.sum[r][t][0]);
          block.sum[r][t][1] = fma(high, value, block.sum[r][t][1]);
        }
      }
    }
  }
};

}  // namespace

void gemm_int8(const WeightView& weight, const float* x, float* out, std::int64_t rows, Pool& pool) {
  run_gemm<Int8Weights>(weight, x, out, rows, pool);
}

}  // namespace kvroll::KVROLL_ISA
