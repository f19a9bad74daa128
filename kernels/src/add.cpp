#include "isa_kernels.h"

namespace kvroll::KVROLL_ISA {

void add_into(float* x, const float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) x[i] += y[i];
}

}  // namespace kvroll::KVROLL_ISA
