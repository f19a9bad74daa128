#include "isa_kernels.h"
#include "kv_vectors.h"

namespace kvroll::KVROLL_ISA {

void kv_write(const KvWriteCall& call, Pool& pool) {
  const KvView& kv = call.pool;
  parallel_rows(pool, call.rows, kv.kv_heads * kv.head_dim * 4, [&](std::int64_t row) {
    for (int which = 0; which < 2; ++which) {
      const float* values = call.qkv + row * call.row_stride + (which == 0 ? call.k_offset : call.v_offset);
      for (std::int64_t head = 0; head < kv.kv_heads; ++head)
        store_vector(kv, call.page_ids[row], kv.vector(call.layer, which, head) + call.slots[row],
                     values + head * kv.head_dim);
    }
  });
}

}  // namespace kvroll::KVROLL_ISA
