#include "gemm_nibbles.h"

namespace kvroll::KVROLL_ISA {
namespace {

struct MxFp4Weights {
  static constexpr std::int64_t kBlock = kMxBlock;
  static constexpr std::int64_t kScaleBytes = kTileOutputs;

  static inline Vec8 value(Words8 words) { return float_of_e2m1(words); }
  static inline Vec8 join(const std::uint8_t* scales, int half, Vec8 sum, const float*, Vec8 total) {
    float powers[8];
    for (int i = 0; i < 8; ++i) powers[i] = float_of_e8m0(scales[8 * half + i]);
    return fma(load(powers), sum, total);
  }
};

}  // namespace

void gemm_mxfp4(const GemmCall& call, Pool& pool) { run_gemm<Nibbles<MxFp4Weights>>(call, pool); }

}  // namespace kvroll::KVROLL_ISA
