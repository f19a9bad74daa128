#include "isa_kernels.h"
#include "vec8.h"

namespace kvroll::KVROLL_ISA {

void rms_norm(const float* x, const float* weight, float* out, std::int64_t rows, std::int64_t n, float eps,
              Pool& pool) {
  parallel_rows(pool, rows, n, [&](std::int64_t row) {
    const float* from = x + row * n;
    float* to = out + row * n;
    const std::int64_t whole = n / 8 * 8;
    Vec8 squares = zeros();
    for (std::int64_t i = 0; i < whole; i += 8) {
      const Vec8 value = load(from + i);
      squares = fma(value, value, squares);
    }
    float total = sum_lanes(squares);
    for (std::int64_t i = whole; i < n; ++i) total += from[i] * from[i];
    const float factor = 1.0f / __builtin_sqrtf(total / static_cast<float>(n) + eps);
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] * factor * weight[i];
  });
}

}  // namespace kvroll::KVROLL_ISA
