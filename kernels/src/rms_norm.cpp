#include "isa_kernels.h"
#include "small_float.h"

namespace kvroll::KVROLL_ISA {
namespace {

// `to` may be `from`.
inline void norm_vector(const float* from, const float* weight, float* to, std::int64_t n, float eps) {
  const std::int64_t whole = n / 8 * 8;
  Vec8 squares = zeros();
  for (std::int64_t i = 0; i < whole; i += 8) {
    const Vec8 value = load(from + i);
    squares = fma(value, value, squares);
  }
  float total = sum_lanes(squares);
  for (std::int64_t i = whole; i < n; ++i) total += from[i] * from[i];
  // Squares that overflow would make it 0, and the vector one of zeros.
  const float factor = is_number(total) ? 1.0f / __builtin_sqrtf(total / static_cast<float>(n) + eps) : quiet_nan();
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] * factor * weight[i];
}

}  // namespace

void rms_norm(const float* x, const float* weight, float* out, std::int64_t rows, std::int64_t n, float eps,
              Pool& pool) {
  parallel_rows(pool, rows, n, [&](std::int64_t row) { norm_vector(x + row * n, weight, out + row * n, n, eps); });
}

// The heads of a row lie side by side among other things (q, k and v of one product), so rows are not dense.
void head_norm(const HeadNormCall& call, Pool& pool) {
  parallel_rows(pool, call.rows, call.heads * call.head_dim, [&](std::int64_t row) {
    float* head = call.x + row * call.row_stride + call.offset;
    for (std::int64_t h = 0; h < call.heads; ++h, head += call.head_dim)
      norm_vector(head, call.weight, head, call.head_dim, call.eps);
  });
}

}  // namespace kvroll::KVROLL_ISA
