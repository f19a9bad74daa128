#include "isa_kernels.h"
#include "sealed_pages.h"

namespace kvroll::KVROLL_ISA {

// One page on the calling thread: it runs beside the engine's steps and must not take the pool from them.
void transcode(const KvView& source, const KvView& target) {
  float values[kMaxHeadDim];
  for (std::int64_t layer = 0; layer < source.layers; ++layer)
    for (int which = 0; which < 2; ++which)
      for (std::int64_t head = 0; head < source.kv_heads; ++head) {
        if (target.sealed()) {
          seal_from(source, 0, target, 0, layer, which, head);
          continue;
        }
        for (std::int64_t token = 0; token < kPageTokens; ++token) {
          read_vector(source, 0, layer, which, head, token, values);
          store_vector(target, 0, target.vector(layer, which, head) + token, values);
        }
      }
}

}  // namespace kvroll::KVROLL_ISA
