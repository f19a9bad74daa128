// How one head vector is stored and read back in each KV format. Scalar code on purpose: the compiler vectorises it,
// true divisions and one rounding rule make the bytes the same in every flavour and in the reference.
#pragma once

#include "kernels.h"
#include "small_float.h"

namespace kvroll::KVROLL_ISA {

inline float float_of_bf16(std::uint16_t value) { return float_of_bits(std::uint32_t{value} << 16); }

// Round to nearest even; NaN stays NaN.
inline std::uint16_t bf16_of_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// max(|values|, 1e-6); NaN where one is NaN or infinite: a scale from it makes all that it is multiplied with NaN.
inline float absmax(const float* values, std::int64_t n) {
  std::uint32_t largest = 0;  // bits of |x| order as |x| does, and an integer maximum vectorises
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = bits_of_float(values[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  if (largest >= 0x7f800000u) return quiet_nan();
  const float most = float_of_bits(largest);
  return most > 1e-6f ? most : 1e-6f;
}

// Payload = round-half-even(value / scale), scale = absmax / 127. Returns the scale. Under a scale that is no number
// the payload is zeros.
inline float quantise_int8(const float* values, std::int64_t n, std::int8_t* payload) {
  const float scale = absmax(values, n) / 127.0f;
  if (!is_number(scale)) {
    std::memset(payload, 0, static_cast<std::size_t>(n));
    return scale;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const float level = (values[i] / scale + 12582912.0f) - 12582912.0f;  // round half to even, |level| < 2^22
    payload[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(saturate(level, 127.0f)));
  }
  return scale;
}

inline void quantise_e4m3(const float* values, std::int64_t n, float scale, std::uint8_t* payload) {
  if (!is_number(scale)) {
    std::memset(payload, 0, static_cast<std::size_t>(n));
    return;
  }
  for (std::int64_t i = 0; i < n; ++i)
    payload[i] = static_cast<std::uint8_t>(E4m3::encode(saturate(values[i] / scale, kE4m3Max)));
}

// The smallest power of two that keeps a block within +-448. The MX specification's floor(log2) clips up to an eighth
// of a block's largest element; on SmolLM2 that costs 0.015 of KL against 0.012.
inline std::uint8_t e8m0_of_absmax(float most) {
  const std::uint32_t bits = bits_of_float(most);
  if (bits >= 0x7f800000u) return kE8m0Nan;
  return static_cast<std::uint8_t>((bits >> 23) - 8 + ((bits & 0x7fffffu) > 0x600000u ? 1 : 0));
}

// Stores `values` as the vector with that index (see KvView::vector, plus the token slot).
inline void store_vector(const KvView& pool, std::int64_t page, std::int64_t index, const float* values) {
  const std::int64_t dim = pool.head_dim;
  std::uint8_t* const payload = pool.payload(page, index);
  switch (pool.kind) {
    case KvKind::kFp32:
      std::memcpy(payload, values, static_cast<std::size_t>(dim) * sizeof(float));
      break;
    case KvKind::kBf16:
      for (std::int64_t i = 0; i < dim; ++i) reinterpret_cast<std::uint16_t*>(payload)[i] = bf16_of_float(values[i]);
      break;
    case KvKind::kFp16:
      for (std::int64_t i = 0; i < dim; ++i) reinterpret_cast<std::uint16_t*>(payload)[i] = half_of_float(values[i]);
      break;
    case KvKind::kFp8:
      *pool.scales(page, index) = absmax(values, dim) / kE4m3Max;
      quantise_e4m3(values, dim, *pool.scales(page, index), payload);
      break;
    case KvKind::kInt8:
      *pool.scales(page, index) = quantise_int8(values, dim, reinterpret_cast<std::int8_t*>(payload));
      break;
    case KvKind::kMxFp8:
      for (std::int64_t first = 0; first < dim; first += kMxBlock) {
        const std::int64_t count = dim - first < kMxBlock ? dim - first : kMxBlock;
        std::uint8_t* const scale = pool.blocks(page, index) + first / kMxBlock;
        *scale = e8m0_of_absmax(absmax(values + first, count));
        quantise_e4m3(values + first, count, float_of_e8m0(*scale), payload + first);
      }
      break;
    case KvKind::kKivi4:
    case KvKind::kKivi2:
      break;  // sealed by the page, never by the vector: no caller comes here with one
  }
}

inline void fetch_vector(const KvView& pool, std::int64_t page, std::int64_t index, float* values) {
  const std::int64_t dim = pool.head_dim;
  const std::uint8_t* const payload = pool.payload(page, index);
  switch (pool.kind) {
    case KvKind::kFp32:
      std::memcpy(values, payload, static_cast<std::size_t>(dim) * sizeof(float));
      break;
    case KvKind::kBf16:
      for (std::int64_t i = 0; i < dim; ++i)
        values[i] = float_of_bf16(reinterpret_cast<const std::uint16_t*>(payload)[i]);
      break;
    case KvKind::kFp16:
      for (std::int64_t i = 0; i < dim; ++i)
        values[i] = Half::decode(reinterpret_cast<const std::uint16_t*>(payload)[i]);
      break;
    case KvKind::kFp8:
      for (std::int64_t i = 0; i < dim; ++i) values[i] = E4m3::decode(payload[i]) * *pool.scales(page, index);
      break;
    case KvKind::kInt8:
      for (std::int64_t i = 0; i < dim; ++i)
        values[i] = static_cast<float>(reinterpret_cast<const std::int8_t*>(payload)[i]) * *pool.scales(page, index);
      break;
    case KvKind::kMxFp8:
      for (std::int64_t i = 0; i < dim; ++i)
        values[i] = E4m3::decode(payload[i]) * float_of_e8m0(pool.blocks(page, index)[i / kMxBlock]);
      break;
    case KvKind::kKivi4:
    case KvKind::kKivi2:
      break;  // see unseal_vector
  }
}

}  // namespace kvroll::KVROLL_ISA
