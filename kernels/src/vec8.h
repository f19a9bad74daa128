// Eight fp32 lanes: AVX2+FMA+F16C where the file is compiled for it, plain arrays otherwise. Each flavour lives in its
// own namespace (KVROLL_ISA), so kernels compiled twice never share an inline function.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define KVROLL_AVX2 1
#else
#define KVROLL_AVX2 0
#endif

namespace kvroll::KVROLL_ISA {

inline float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

#if KVROLL_AVX2

struct Vec8 {
  __m256 lanes;
};

inline Vec8 zeros() { return {_mm256_setzero_ps()}; }
inline Vec8 splat(float value) { return {_mm256_set1_ps(value)}; }
inline Vec8 load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store(float* to, Vec8 a) { _mm256_storeu_ps(to, a.lanes); }
inline Vec8 add(Vec8 a, Vec8 b) { return {_mm256_add_ps(a.lanes, b.lanes)}; }
inline Vec8 sub(Vec8 a, Vec8 b) { return {_mm256_sub_ps(a.lanes, b.lanes)}; }
inline Vec8 mul(Vec8 a, Vec8 b) { return {_mm256_mul_ps(a.lanes, b.lanes)}; }
inline Vec8 div(Vec8 a, Vec8 b) { return {_mm256_div_ps(a.lanes, b.lanes)}; }
inline Vec8 max(Vec8 a, Vec8 b) { return {_mm256_max_ps(a.lanes, b.lanes)}; }
inline Vec8 min(Vec8 a, Vec8 b) { return {_mm256_min_ps(a.lanes, b.lanes)}; }
// a * b + c
inline Vec8 fma(Vec8 a, Vec8 b, Vec8 c) { return {_mm256_fmadd_ps(a.lanes, b.lanes, c.lanes)}; }
inline Vec8 round_even(Vec8 a) { return {_mm256_round_ps(a.lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// 2^n for integral n in [-126, 127]
inline Vec8 power_of_two(Vec8 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.lanes), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23))};
}
// a where test > bound, else 0
inline Vec8 keep_above(Vec8 a, Vec8 test, Vec8 bound) {
  return {_mm256_and_ps(a.lanes, _mm256_cmp_ps(test.lanes, bound.lanes, _CMP_GT_OQ))};
}

// 16 bf16: lanes of `even` are elements 0, 2, .. 14, lanes of `odd` are 1, 3, .. 15 (one shift and one mask, no
// shuffle)
inline void load_bf16x16(const std::uint16_t* from, Vec8& even, Vec8& odd) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  even.lanes = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
  odd.lanes = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

// 16 int8 as fp32: `low` are elements 0..7, `high` are 8..15
inline void load_int8x16(const std::int8_t* from, Vec8& low, Vec8& high) {
  const __m128i a = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  const __m128i b = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8));
  low.lanes = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(a));
  high.lanes = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
}

inline float float_of_half(std::uint16_t half) { return _cvtsh_ss(half); }

// 16 fp16 as fp32: `low` are elements 0..7, `high` are 8..15
inline void load_fp16x16(const std::uint16_t* from, Vec8& low, Vec8& high) {
  low.lanes = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  high.lanes = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8)));
}

// 16 finite E4M3 as fp32 / kFp8Factor: moved to where fp16 keeps sign, exponent and mantissa, whose bias is 8 more.
inline void load_e4m3x16(const std::uint8_t* from, Vec8& low, Vec8& high) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<short>(0xbfff)));
  low.lanes = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
  high.lanes = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
}

struct Bytes32 {
  __m256i lanes;
};
inline Bytes32 load_bytes32(const std::int8_t* from) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
}
// Lane i = int8 4i + J, times 2^24: a shift and a mask leave the byte at the top of its 32 bits, no byte shuffle.
template <int J>
inline Vec8 widen(Bytes32 bytes) {
  const __m256i up = J == 3 ? bytes.lanes : _mm256_slli_epi32(bytes.lanes, 24 - 8 * J);
  const __m256i top = J == 0 ? up : _mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xff000000u)));
  return {_mm256_cvtepi32_ps(top)};
}

// Eight 32-bit words of eight half bytes each.
struct Words8 {
  __m256i lanes;
};
inline Words8 load_words8(const std::uint8_t* from) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
}
inline Words8 next_nibble(Words8 words) { return {_mm256_srli_epi32(words.lanes, 4)}; }
// The lowest half byte as a number in 0 .. 15
inline Vec8 float_of_nibble(Words8 words) {
  return {_mm256_cvtepi32_ps(_mm256_and_si256(words.lanes, _mm256_set1_epi32(15)))};
}
// The lowest half byte as E2M1: a permutation looks at three bits, which are the magnitude.
inline Vec8 float_of_e2m1(Words8 words) {
  const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256 sign = _mm256_castsi256_ps(_mm256_slli_epi32(words.lanes, 28));
  return {_mm256_or_ps(_mm256_permutevar8x32_ps(table, words.lanes), _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)))};
}

// out[i] = the sum of the lanes of the i-th vector
inline void sum_lanes4(Vec8 a, Vec8 b, Vec8 c, Vec8 d, float* out) {
  const __m256 ab = _mm256_hadd_ps(a.lanes, b.lanes);
  const __m256 cd = _mm256_hadd_ps(c.lanes, d.lanes);
  const __m256 all = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

inline void prefetch(const void* address) { _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0); }
inline void prefetch_far(const void* address) { _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T1); }

#else

struct Vec8 {
  float lanes[8];
};

template <class Function>
inline Vec8 each(const Function& function) {
  Vec8 result;
  for (int i = 0; i < 8; ++i) result.lanes[i] = function(i);
  return result;
}

inline Vec8 splat(float value) {
  return each([&](int) { return value; });
}
inline Vec8 zeros() { return splat(0.0f); }
inline Vec8 load(const float* from) {
  Vec8 result;
  std::memcpy(result.lanes, from, sizeof result.lanes);
  return result;
}
inline void store(float* to, const Vec8& a) { std::memcpy(to, a.lanes, sizeof a.lanes); }
inline Vec8 add(const Vec8& a, const Vec8& b) {
  return each([&](int i) { return a.lanes[i] + b.lanes[i]; });
}
inline Vec8 sub(const Vec8& a, const Vec8& b) {
  return each([&](int i) { return a.lanes[i] - b.lanes[i]; });
}
inline Vec8 mul(const Vec8& a, const Vec8& b) {
  return each([&](int i) { return a.lanes[i] * b.lanes[i]; });
}
inline Vec8 div(const Vec8& a, const Vec8& b) {
  return each([&](int i) { return a.lanes[i] / b.lanes[i]; });
}
inline Vec8 max(const Vec8& a, const Vec8& b) {
  return each([&](int i) { return a.lanes[i] > b.lanes[i] ? a.lanes[i] : b.lanes[i]; });
}
inline Vec8 min(const Vec8& a, const Vec8& b) {
  return each([&](int i) { return a.lanes[i] < b.lanes[i] ? a.lanes[i] : b.lanes[i]; });
}
// Rounds twice where AVX2 rounds once: the plain flavour has a build hash of its own.
inline Vec8 fma(const Vec8& a, const Vec8& b, const Vec8& c) {
  return each([&](int i) { return a.lanes[i] * b.lanes[i] + c.lanes[i]; });
}
// Right for |a| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction.
inline Vec8 round_even(const Vec8& a) {
  return each([&](int i) { return (a.lanes[i] + 12582912.0f) - 12582912.0f; });
}
inline Vec8 power_of_two(const Vec8& n) {
  return each(
      [&](int i) { return float_of_bits(static_cast<std::uint32_t>(static_cast<int>(n.lanes[i]) + 127) << 23); });
}
inline Vec8 keep_above(const Vec8& a, const Vec8& test, const Vec8& bound) {
  return each([&](int i) { return test.lanes[i] > bound.lanes[i] ? a.lanes[i] : 0.0f; });
}
inline void load_bf16x16(const std::uint16_t* from, Vec8& even, Vec8& odd) {
  for (int i = 0; i < 8; ++i) {
    even.lanes[i] = float_of_bits(std::uint32_t{from[2 * i]} << 16);
    odd.lanes[i] = float_of_bits(std::uint32_t{from[2 * i + 1]} << 16);
  }
}
inline void load_int8x16(const std::int8_t* from, Vec8& low, Vec8& high) {
  for (int i = 0; i < 8; ++i) {
    low.lanes[i] = static_cast<float>(from[i]);
    high.lanes[i] = static_cast<float>(from[8 + i]);
  }
}
inline float float_of_half(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffu, sign = half & 0x8000u;
  const float number = float_of_bits(magnitude << 13 | sign << 16) * 5.192296858534828e33f;  // 2^112
  const float special = float_of_bits(sign << 16 | 0x7f800000u | (magnitude == 0x7c00u ? 0u : 0x400000u));
  return magnitude < 0x7c00u ? number : special;
}
inline void load_fp16x16(const std::uint16_t* from, Vec8& low, Vec8& high) {
  for (int i = 0; i < 16; ++i) (i < 8 ? low : high).lanes[i % 8] = float_of_half(from[i]);
}
inline void load_e4m3x16(const std::uint8_t* from, Vec8& low, Vec8& high) {
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t magnitude = std::uint32_t{from[i]} & 0x7fu, sign = std::uint32_t{from[i]} & 0x80u;
    (i < 8 ? low : high).lanes[i % 8] = float_of_bits(magnitude << 20 | sign << 24) * 5.192296858534828e33f;
  }
}
struct Bytes32 {
  std::int8_t lanes[32];
};
inline Bytes32 load_bytes32(const std::int8_t* from) {
  Bytes32 result;
  std::memcpy(result.lanes, from, sizeof result.lanes);
  return result;
}
template <int J>
inline Vec8 widen(const Bytes32& bytes) {
  return each([&](int i) { return static_cast<float>(bytes.lanes[4 * i + J]) * 16777216.0f; });
}
struct Words8 {
  std::uint32_t lanes[8];
};
inline Words8 load_words8(const std::uint8_t* from) {
  Words8 result;
  std::memcpy(result.lanes, from, sizeof result.lanes);
  return result;
}
inline Words8 next_nibble(const Words8& words) {
  Words8 result;
  for (int i = 0; i < 8; ++i) result.lanes[i] = words.lanes[i] >> 4;
  return result;
}
inline Vec8 float_of_nibble(const Words8& words) {
  return each([&](int i) { return static_cast<float>(words.lanes[i] & 15u); });
}
inline Vec8 float_of_e2m1(const Words8& words) {
  constexpr float kTable[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return each([&](int i) {
    const float magnitude = kTable[words.lanes[i] & 7u];
    return (words.lanes[i] & 8u) != 0 ? -magnitude : magnitude;
  });
}
inline void sum_lanes4(const Vec8& a, const Vec8& b, const Vec8& c, const Vec8& d, float* out) {
  const Vec8* all[4] = {&a, &b, &c, &d};
  for (int i = 0; i < 4; ++i) {
    const float* l = all[i]->lanes;
    out[i] = ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
  }
}
inline void prefetch(const void*) {}
inline void prefetch_far(const void*) {}

#endif

inline float sum_lanes(Vec8 a) {
  float sums[4];
  sum_lanes4(a, a, a, a, sums);
  return sums[0];
}

inline float max_lanes(Vec8 a) {
  float lanes[8];
  store(lanes, a);
  float largest = lanes[0];
  for (int i = 1; i < 8; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  return largest;
}

// e^x to 2 ulp; exactly 0 below -87, saturates above 88. Range reduction and polynomial of Cephes' expf.
inline Vec8 exp8(Vec8 x) {
  const Vec8 lowest = splat(-87.0f);
  const Vec8 bounded = min(max(x, lowest), splat(88.0f));
  const Vec8 n = round_even(mul(bounded, splat(1.44269504088896341f)));
  const Vec8 r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), bounded));
  Vec8 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  const Vec8 y = add(fma(mul(p, r), r, r), splat(1.0f));
  return keep_above(mul(y, power_of_two(n)), x, lowest);
}

}  // namespace kvroll::KVROLL_ISA
