#include "isa_kernels.h"
#include "sealed_pages.h"

namespace kvroll::KVROLL_ISA {

void kivi_seal(const SealCall& call, Pool& pool) {
  const std::int64_t heads = call.pages.kv_heads, halves = call.pages.layers * 2 * heads;
  parallel_rows(pool, call.count * halves, kPageTokens * call.pages.head_dim * 16, [&](std::int64_t index) {
    const std::int64_t page = index / halves, half = index % halves;
    seal_from(call.open, call.open_page_ids[page], call.pages, call.page_ids[page], half / (2 * heads),
              static_cast<int>(half / heads % 2), half % heads);
  });
}

}  // namespace kvroll::KVROLL_ISA
