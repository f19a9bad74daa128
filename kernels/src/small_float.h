// Floats of 16 bits and fewer by integer arithmetic, so that every flavour and the reference agree to the bit. A finite
// value that is too large saturates; what is no number is never stored as one.
#pragma once

#include "vec8.h"

namespace kvroll::KVROLL_ISA {

// Which codes are no numbers: none, the highest magnitude alone (E4M3), or all with the highest exponent (IEEE).
enum class Specials { kNone, kHighest, kIeee };

template <int kBits, int kMantissa, int kBias, Specials kSpecials>
struct SmallFloat {
  static constexpr int kShift = 23 - kMantissa;
  static constexpr std::uint32_t kMagnitude = (1u << (kBits - 1)) - 1;
  static constexpr std::uint32_t kSpecial =  // magnitudes from here on are NaN, or of IEEE infinity first
      kSpecials == Specials::kNone      ? kMagnitude + 1
      : kSpecials == Specials::kHighest ? kMagnitude
                                        : kMagnitude >> kMantissa << kMantissa;

  // Round to nearest even; |value| must not round beyond the largest finite code.
  static inline std::uint32_t encode(float value) {
    constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << kMantissa;
    constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
    // Adding 2^23 times the smallest subnormal leaves the code of a subnormal in the low bits, rounded by the adder.
    constexpr std::uint32_t kMagic = static_cast<std::uint32_t>(151 - kBias - kMantissa) << 23;
    const std::uint32_t bits = bits_of_float(value), magnitude = bits & 0x7fffffffu;
    const std::uint32_t half = (1u << (kShift - 1)) - 1 + (magnitude >> kShift & 1u);
    const std::uint32_t normal = ((magnitude + half) >> kShift) - kRebias;
    const std::uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + float_of_bits(kMagic)) - kMagic;
    return (magnitude < kSmallestNormal ? subnormal : normal) | bits >> 31 << (kBits - 1);
  }

  // Exact: the code's bits read as an fp32 are the value times 2^(bias - 127), subnormals included.
  static inline float decode(std::uint32_t code) {
    const std::uint32_t magnitude = code & kMagnitude, sign = code >> (kBits - 1) << 31;
    const float value =
        float_of_bits(magnitude << kShift | sign) * float_of_bits(static_cast<std::uint32_t>(254 - kBias) << 23);
    if constexpr (kSpecials == Specials::kNone) return value;
    const float special = float_of_bits(sign | kInfinity | (magnitude == kInfinityCode ? 0u : kQuiet));
    return magnitude < kSpecial ? value : special;
  }

  static constexpr std::uint32_t kInfinityCode = kSpecials == Specials::kIeee ? kSpecial : kMagnitude + 1;
  static constexpr std::uint32_t kInfinity = 0x7f800000u, kQuiet = 0x400000u;
};

using Half = SmallFloat<16, 10, 15, Specials::kIeee>;
using E4m3 = SmallFloat<8, 3, 7, Specials::kHighest>;
using E2m1 = SmallFloat<4, 1, 1, Specials::kNone>;

constexpr float kHalfMax = 65504.0f;
constexpr float kE4m3Max = 448.0f;
constexpr std::uint16_t kHalfNan = 0x7e00u;
constexpr std::uint8_t kE8m0Nan = 0xffu;

inline float quiet_nan() { return float_of_bits(0x7fc00000u); }
inline bool is_number(float value) { return (bits_of_float(value) & 0x7fffffffu) < 0x7f800000u; }

// For numbers: NaN would become -largest.
inline float saturate(float value, float largest) {
  const float above = value > -largest ? value : -largest;
  return above < largest ? above : largest;
}

inline std::uint16_t half_of_float(float value) {
  const std::uint32_t bits = bits_of_float(value), magnitude = bits & 0x7fffffffu;
  const std::uint32_t number = Half::encode(saturate(value, kHalfMax));
  const std::uint32_t special = magnitude > 0x7f800000u ? kHalfNan : 0x7c00u | bits >> 31 << 15;
  return static_cast<std::uint16_t>(magnitude < 0x7f800000u ? number : special);
}

// 2^(code - 127), the scale of an OCP MX block; writers use codes in [1, 254], and 255, NaN, where the block holds what
// is no number. It is read as infinity: the elements beside it are zeros, and 0 times infinity is NaN, so no reader has
// to look.
inline float float_of_e8m0(std::uint8_t code) { return float_of_bits(std::uint32_t{code} << 23); }

}  // namespace kvroll::KVROLL_ISA
