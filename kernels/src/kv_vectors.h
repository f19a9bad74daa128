// How one head vector is stored and read back in each KV format. Scalar code on purpose: the compiler vectorises it,
// true divisions and one rounding rule make the bytes the same in every flavour and in the reference.
#pragma once

#include "kernels.h"
#include "vec8.h"

namespace kvroll::KVROLL_ISA {

inline float float_of_bf16(std::uint16_t value) { return float_of_bits(std::uint32_t{value} << 16); }

// Round to nearest even; NaN stays NaN.
inline std::uint16_t bf16_of_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// Payload = round-half-even(value / scale), scale = max(absmax, 1e-6) / 127. Returns the scale.
inline float quantise_int8(const float* values, std::int64_t n, std::int8_t* payload) {
  std::uint32_t largest = 0;  // bits of |x| order as |x| does, and an integer maximum vectorises
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = bits_of_float(values[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float absmax = float_of_bits(largest);
  const float scale = (absmax > 1e-6f ? absmax : 1e-6f) / 127.0f;
  for (std::int64_t i = 0; i < n; ++i) {
    float level = (values[i] / scale + 12582912.0f) - 12582912.0f;  // round half to even, |level| < 2^22
    level = level > -127.0f ? level : -127.0f;                      // also takes NaN, whose conversion is undefined
    level = level < 127.0f ? level : 127.0f;
    payload[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(level));
  }
  return scale;
}

// Stores `values` as the vector with that index (see KvView::vector, plus the token slot).
inline void store_vector(const KvView& pool, std::int64_t page, std::int64_t index, const float* values) {
  std::uint8_t* payload = pool.payload(page, index);
  if (pool.kind == KvKind::kInt8) {
    *pool.scales(page, index) = quantise_int8(values, pool.head_dim, reinterpret_cast<std::int8_t*>(payload));
    return;
  }
  auto* to = reinterpret_cast<std::uint16_t*>(payload);
  for (std::int64_t i = 0; i < pool.head_dim; ++i) to[i] = bf16_of_float(values[i]);
}

inline void fetch_vector(const KvView& pool, std::int64_t page, std::int64_t index, float* values) {
  const std::uint8_t* payload = pool.payload(page, index);
  if (pool.kind == KvKind::kInt8) {
    const float scale = *pool.scales(page, index);
    const auto* from = reinterpret_cast<const std::int8_t*>(payload);
    for (std::int64_t i = 0; i < pool.head_dim; ++i) values[i] = static_cast<float>(from[i]) * scale;
    return;
  }
  const auto* from = reinterpret_cast<const std::uint16_t*>(payload);
  for (std::int64_t i = 0; i < pool.head_dim; ++i) values[i] = float_of_bf16(from[i]);
}

}  // namespace kvroll::KVROLL_ISA
