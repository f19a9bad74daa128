#include "isa_kernels.h"

namespace kvroll::KVROLL_ISA {

void rope(const RopeCall& call, Pool& pool) {
  const std::int64_t half = call.head_dim / 2;
  parallel_rows(pool, call.rows, call.heads * call.head_dim, [&](std::int64_t row) {
    const float* cos = call.cos + call.positions[row] * half;
    const float* sin = call.sin + call.positions[row] * half;
    for (std::int64_t head = 0; head < call.heads; ++head) {
      float* low = call.x + row * call.row_stride + call.offset + head * call.head_dim;
      float* high = low + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a * cos[i] - b * sin[i];
        high[i] = b * cos[i] + a * sin[i];
      }
    }
  });
}

}  // namespace kvroll::KVROLL_ISA
