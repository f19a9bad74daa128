// Floats of 16 bits and fewer by integer arithmetic, so that every flavour and the reference agree to the bit. Formats
// without infinities as we use them: what is stored is finite, because writers saturate.
#pragma once

#include "vec8.h"

namespace kvroll::KVROLL_ISA {

template <int kBits, int kMantissa, int kBias>
struct SmallFloat {
  static constexpr int kShift = 23 - kMantissa;
  static constexpr std::uint32_t kMagnitude = (1u << (kBits - 1)) - 1;

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
    const float scaled = float_of_bits((code & kMagnitude) << kShift | code >> (kBits - 1) << 31);
    return scaled * float_of_bits(static_cast<std::uint32_t>(254 - kBias) << 23);
  }
};

using Half = SmallFloat<16, 10, 15>;
using E4m3 = SmallFloat<8, 3, 7>;
using E2m1 = SmallFloat<4, 1, 1>;

constexpr float kHalfMax = 65504.0f;
constexpr float kE4m3Max = 448.0f;

// Takes NaN to -largest.
inline float saturate(float value, float largest) {
  const float above = value > -largest ? value : -largest;
  return above < largest ? above : largest;
}

// 2^(code - 127), the scale of an OCP MX block; writers use codes in [1, 254].
inline float float_of_e8m0(std::uint8_t code) { return float_of_bits(std::uint32_t{code} << 23); }

}  // namespace kvroll::KVROLL_ISA
