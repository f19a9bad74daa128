// What sealed and open pages are read by, in order: 8 bf16, and 16 codes of 4 or 2 bits.
#pragma once

#include "vec8.h"

namespace kvroll::KVROLL_ISA {

#if KVROLL_AVX2

inline Vec8 load_bf16x8(const std::uint16_t* from) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}

// 16 codes of 4 or 2 bits, the first in the lowest bits, as fp32: `low` are elements 0..7, `high` are 8..15
template <int kBits>
inline void load_codes16(const std::uint8_t* from, Vec8& low, Vec8& high) {
  const __m256i steps = _mm256_setr_epi32(0, kBits, 2 * kBits, 3 * kBits, 4 * kBits, 5 * kBits, 6 * kBits, 7 * kBits);
  const __m256i mask = _mm256_set1_epi32((1 << kBits) - 1);
  std::uint64_t words = 0;
  std::memcpy(&words, from, 2 * kBits);
  const __m256i a = _mm256_set1_epi32(static_cast<int>(words));
  const __m256i b = _mm256_set1_epi32(static_cast<int>(words >> (8 * kBits)));
  low.lanes = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(a, steps), mask));
  high.lanes = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(b, steps), mask));
}

#else

inline Vec8 load_bf16x8(const std::uint16_t* from) {
  return each([&](int i) { return float_of_bits(std::uint32_t{from[i]} << 16); });
}
template <int kBits>
inline void load_codes16(const std::uint8_t* from, Vec8& low, Vec8& high) {
  for (int i = 0; i < 16; ++i)
    (i < 8 ? low : high).lanes[i % 8] =
        static_cast<float>(std::uint32_t{from[i * kBits / 8]} >> (i * kBits % 8) & ((1u << kBits) - 1));
}

#endif

}  // namespace kvroll::KVROLL_ISA
