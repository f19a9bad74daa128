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

}  // namespace

void gemm_fp32(const GemmCall& call, Pool& pool) { run_gemm<OneInput<Fp32Weights>>(call, pool); }

}  // namespace kvroll::KVROLL_ISA
