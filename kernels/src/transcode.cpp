#include "isa_kernels.h"
#include "kv_vectors.h"

namespace kvroll::KVROLL_ISA {

// One page on the calling thread: it runs beside the engine's steps and must not take the pool from them.
void transcode(const KvView& source, const KvView& target) {
  float values[kMaxHeadDim];
  for (std::int64_t index = 0; index < source.vectors(); ++index) {
    fetch_vector(source, 0, index, values);
    store_vector(target, 0, index, values);
  }
}

}  // namespace kvroll::KVROLL_ISA
