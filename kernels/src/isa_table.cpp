#include "isa_kernels.h"

#define KVROLL_TEXT_OF(word) #word
#define KVROLL_TEXT(word) KVROLL_TEXT_OF(word)

namespace kvroll::KVROLL_ISA {

const KernelTable& table() {
  static constexpr KernelTable kTable{KVROLL_TEXT(KVROLL_ISA),
                                      {gemm_fp32, gemm_bf16, gemm_fp16, gemm_fp8, gemm_int8, gemm_int4, gemm_mxfp4},
                                      embed,
                                      rms_norm,
                                      head_norm,
                                      add_into,
                                      silu_mul,
                                      rope,
                                      kv_write,
                                      kivi_seal,
                                      paged_attention,
                                      transcode};
  return kTable;
}

}  // namespace kvroll::KVROLL_ISA
