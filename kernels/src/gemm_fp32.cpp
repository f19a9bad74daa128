#include "gemm_tile.h"

namespace kvroll::KVROLL_ISA {
namespace {

struct Fp32Weights {
  using Element = float;
  static inline void load(const Element* from, Vec8& low, Vec8& high) {
    low = KVROLL_ISA::load(from);
    high = KVROLL_ISA::load(from + 8);
  }
};

// fp32 weights are asked for to be near the exact product, so K is summed in chains of kChain inputs that are added in
// order: the rounding error grows with sqrt(kChain + K / kChain) instead of sqrt(K) (Higham, Accuracy and Stability of
// Numerical Algorithms, section 4.2). Measured on SmolLM2's logits against fp64 in docs/models.md.
struct Fp32InChains : OneInput<Fp32Weights> {
  static constexpr std::int64_t kChain = 64;

  template <int R, int T>
  static inline void accumulate(const Element* packed, std::int64_t stride, const float* x, const float*,
                                std::int64_t inputs, Block<R, T>& block) {
    for (std::int64_t begin = 0; begin < inputs; begin += kChain) {
      const std::int64_t end = begin + kChain < inputs ? begin + kChain : inputs;
      Vec8 sum[R][T][2];
      for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) sum[r][t][0] = sum[r][t][1] = zeros();
      for (std::int64_t k = begin; k < end; ++k)
        for (int t = 0; t < T; ++t) {
          const Element* from = packed + t * stride + k * kTileOutputs;
          prefetch(reinterpret_cast<const char*>(from) + kPrefetchBytes);
          Vec8 low, high;
          Fp32Weights::load(from, low, high);
          for (int r = 0; r < R; ++r) {
            const Vec8 value = splat(x[r * inputs + k]);
            sum[r][t][0] = fma(low, value, sum[r][t][0]);
            sum[r][t][1] = fma(high, value, sum[r][t][1]);
          }
        }
      for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t)
          for (int half = 0; half < 2; ++half) block.sum[r][t][half] = add(block.sum[r][t][half], sum[r][t][half]);
    }
  }
};

}  // namespace

void gemm_fp32(const GemmCall& call, Pool& pool) { run_gemm<Fp32InChains>(call, pool); }

}  // namespace kvroll::KVROLL_ISA
