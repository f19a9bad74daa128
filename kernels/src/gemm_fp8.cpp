#include "gemm_tile.h"

namespace kvroll::KVROLL_ISA {
namespace {

struct Fp8Weights {
  using Element = std::uint8_t;
  static inline void load(const Element* from, Vec8& low, Vec8& high) {
    load_e4m3x16(from, low, high);  // the rest of the factor is in the channel's scale
  }
};

}  // namespace

void gemm_fp8(const GemmCall& call, Pool& pool) { run_gemm<OneInput<Fp8Weights>>(call, pool); }

}  // namespace kvroll::KVROLL_ISA
