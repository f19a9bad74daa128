// The kernels of the instruction set that this file is compiled for, one a source file; `isa_table.cpp` collects them.
#pragma once

#include "kernels.h"

namespace kvroll::KVROLL_ISA {

void gemm_fp32(const GemmCall&, Pool&);
void gemm_bf16(const GemmCall&, Pool&);
void gemm_fp16(const GemmCall&, Pool&);
void gemm_fp8(const GemmCall&, Pool&);
void gemm_int8(const GemmCall&, Pool&);
void gemm_int4(const GemmCall&, Pool&);
void gemm_mxfp4(const GemmCall&, Pool&);
void embed(const WeightView&, const std::int32_t* ids, float* out, std::int64_t rows, Pool&);
void rms_norm(const float* x, const float* weight, float* out, std::int64_t rows, std::int64_t n, float eps, Pool&);
void head_norm(const HeadNormCall&, Pool&);
void add_into(float* x, const float* y, std::int64_t count);
void silu_mul(const float* gate_up, float* out, std::int64_t rows, std::int64_t n, Pool&);
void rope(const RopeCall&, Pool&);
void kv_write(const KvWriteCall&, Pool&);
void kivi_seal(const SealCall&, Pool&);
void paged_attention(const AttentionCall&, Pool&);
void transcode(const KvView& source, const KvView& target);

}  // namespace kvroll::KVROLL_ISA
