#include "gemm_tile.h"

namespace kvroll::KVROLL_ISA {
namespace {

struct Fp16Weights {
  using Element = std::uint16_t;
  static inline void load(const Element* from, Vec8& low, Vec8& high) { load_fp16x16(from, low, high); }
};

}  // namespace

void gemm_fp16(const GemmCall& call, Pool& pool) { run_gemm<OneInput<Fp16Weights>>(call, pool); }

}  // namespace kvroll::KVROLL_ISA
