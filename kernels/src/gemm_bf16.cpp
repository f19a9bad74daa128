#include "gemm_tile.h"

namespace kvroll::KVROLL_ISA {
namespace {

struct Bf16Weights {
  static constexpr int kRows = kMaxRows;
  using Element = std::uint16_t;

  // 64 bytes hold 16 outputs x 2 k: a shift gives the even k, a mask the odd one.
  template <int R, int T>
  static inline void accumulate(const Element* packed, std::int64_t stride, const float* x, const float*,
                                std::int64_t inputs, Block<R, T>& block) {
    std::int64_t k = 0;
    for (; k + 2 <= inputs; k += 2) {
      for (int t = 0; t < T; ++t) {
        const Element* from = packed + t * stride + k * kTileOutputs;
        prefetch(reinterpret_cast<const char*>(from) + kPrefetchBytes);
        Vec8 even[2], odd[2];
        load_bf16x16(from, even[0], odd[0]);
        load_bf16x16(from + 16, even[1], odd[1]);
        for (int r = 0; r < R; ++r) {
          const Vec8 first = splat(x[r * inputs + k]);
          block.sum[r][t][0] = fma(even[0], first, block.sum[r][t][0]);
          block.sum[r][t][1] = fma(even[1], first, block.sum[r][t][1]);
        }
        for (int r = 0; r < R; ++r) {
          const Vec8 second = splat(x[r * inputs + k + 1]);
          block.sum[r][t][0] = fma(odd[0], second, block.sum[r][t][0]);
          block.sum[r][t][1] = fma(odd[1], second, block.sum[r][t][1]);
        }
      }
    }
    if (k == inputs) return;
    for (int t = 0; t < T; ++t) {
      Vec8 even[2], odd[2];
      load_bf16x16(packed + t * stride + k * kTileOutputs, even[0], odd[0]);
      load_bf16x16(packed + t * stride + k * kTileOutputs + 16, even[1], odd[1]);
      for (int r = 0; r < R; ++r) {
        const Vec8 last = splat(x[r * inputs + k]);
        for (int half = 0; half < 2; ++half) block.sum[r][t][half] = fma(even[half], last, block.sum[r][t][half]);
      }
    }
  }
};

}  // namespace

void gemm_bf16(const GemmCall& call, Pool& pool) { run_gemm<Bf16Weights>(call, pool); }

}  // namespace kvroll::KVROLL_ISA
