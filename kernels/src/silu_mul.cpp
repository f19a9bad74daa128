#include "isa_kernels.h"
#include "vec8.h"

namespace kvroll::KVROLL_ISA {
namespace {

inline Vec8 gated(Vec8 gate, Vec8 up) {
  const Vec8 one = splat(1.0f);
  return mul(div(gate, add(one, exp8(sub(zeros(), gate)))), up);
}

}  // namespace

void silu_mul(const float* gate_up, float* out, std::int64_t rows, std::int64_t n, Pool& pool) {
  parallel_rows(pool, rows, n * 8, [&](std::int64_t row) {
    const float* gate = gate_up + row * 2 * n;
    const float* up = gate + n;
    float* to = out + row * n;
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) store(to + i, gated(load(gate + i), load(up + i)));
    if (i == n) return;
    float tail[3][8] = {};
    const auto bytes = static_cast<std::size_t>(n - i) * sizeof(float);
    std::memcpy(tail[0], gate + i, bytes);
    std::memcpy(tail[1], up + i, bytes);
    store(tail[2], gated(load(tail[0]), load(tail[1])));
    std::memcpy(to + i, tail[2], bytes);
  });
}

}  // namespace kvroll::KVROLL_ISA
