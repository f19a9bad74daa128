// How attention reads each KV format: 16 elements of a head vector as two vectors of fp32 lanes.
//
// kBits: bits of an element. kVectorScale: an fp32 scale a vector, applied to scores and weights, not to elements.
// kFactor: lanes are the stored values divided by this power of two. element(lane): where lane i of a loaded pair
// (first vector 0..7, second 8..15) stands in memory. load_pair(vector, blocks, dim, c, a, b): elements c .. c + 15 of
// a vector of `dim` whose block scales, where the format has them, begin at `blocks`. block_stride(n): bytes from one
// token's block scales to the next one's, of n blocks. kSealed: K and V of sealed pages load differently, and open
// pages stand among them; lanes of all three are in order.
#pragma once

#include "kernels.h"
#include "sealed_lanes.h"
#include "small_float.h"

namespace kvroll::KVROLL_ISA {

struct InOrder {
  static constexpr bool kVectorScale = false;
  static constexpr bool kSealed = false;
  static constexpr float kFactor = 1.0f;
  static inline int element(int lane) { return lane; }
  static inline std::int64_t block_stride(std::int64_t blocks) { return blocks; }
};

struct Fp32Pages : InOrder {
  static constexpr int kBits = 32;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t, std::int64_t c, Vec8& a,
                               Vec8& b) {
    a = load(reinterpret_cast<const float*>(vector) + c);
    b = load(reinterpret_cast<const float*>(vector) + c + 8);
  }
};

struct Bf16Pages : InOrder {
  static constexpr int kBits = 16;
  static inline int element(int lane) { return lane < 8 ? 2 * lane : 2 * (lane - 8) + 1; }
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t, std::int64_t c, Vec8& a,
                               Vec8& b) {
    load_bf16x16(reinterpret_cast<const std::uint16_t*>(vector) + c, a, b);
  }
};

struct Fp16Pages : InOrder {
  static constexpr int kBits = 16;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t, std::int64_t c, Vec8& a,
                               Vec8& b) {
    load_fp16x16(reinterpret_cast<const std::uint16_t*>(vector) + c, a, b);
  }
};

struct Int8Pages : InOrder {
  static constexpr int kBits = 8;
  static constexpr bool kVectorScale = true;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t, std::int64_t c, Vec8& a,
                               Vec8& b) {
    load_int8x16(reinterpret_cast<const std::int8_t*>(vector) + c, a, b);
  }
};

struct Fp8Pages : InOrder {
  static constexpr int kBits = 8;
  static constexpr bool kVectorScale = true;
  static constexpr float kFactor = kFp8Factor;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t, std::int64_t c, Vec8& a,
                               Vec8& b) {
    load_e4m3x16(vector + c, a, b);
  }
};

struct MxFp8Pages : InOrder {
  static constexpr int kBits = 8;
  static constexpr float kFactor = kFp8Factor;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t* blocks, std::int64_t, std::int64_t c,
                               Vec8& a, Vec8& b) {
    load_e4m3x16(vector + c, a, b);
    const Vec8 scale = splat(float_of_e8m0(blocks[c / kMxBlock]));  // a power of two: no rounding
    a = mul(a, scale);
    b = mul(b, scale);
  }
};

struct OpenPages : InOrder {
  static constexpr int kBits = 16;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t, std::int64_t c, Vec8& a,
                               Vec8& b) {
    a = load_bf16x8(reinterpret_cast<const std::uint16_t*>(vector) + c);
    b = load_bf16x8(reinterpret_cast<const std::uint16_t*>(vector) + c + 8);
  }
};

// code * scale + zero: the product of a code and an fp16 scale is exact in fp32, so fused or not it is rounded once.
template <int kCodeBits>
struct SealedKeys : InOrder {
  static constexpr int kBits = kCodeBits;
  static inline std::int64_t block_stride(std::int64_t) { return 0; }  // the scales are the page's
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t* scales, std::int64_t dim, std::int64_t c,
                               Vec8& a, Vec8& b) {
    Vec8 scale_a, scale_b, zero_a, zero_b;
    load_fp16x16(reinterpret_cast<const std::uint16_t*>(scales) + c, scale_a, scale_b);
    load_fp16x16(reinterpret_cast<const std::uint16_t*>(scales) + dim + c, zero_a, zero_b);
    load_codes16<kBits>(vector + c * kBits / 8, a, b);
    a = fma(a, scale_a, zero_a);
    b = fma(b, scale_b, zero_b);
  }
};

template <int kCodeBits>
struct SealedValues : InOrder {
  static constexpr int kBits = kCodeBits;
  static inline std::int64_t block_stride(std::int64_t blocks) { return 4 * blocks; }
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t* scales, std::int64_t, std::int64_t c,
                               Vec8& a, Vec8& b) {
    const std::uint16_t* const pair = reinterpret_cast<const std::uint16_t*>(scales) + 2 * (c / kMxBlock);
    const Vec8 scale = splat(float_of_half(pair[0])), zero = splat(float_of_half(pair[1]));
    load_codes16<kBits>(vector + c * kBits / 8, a, b);
    a = fma(a, scale, zero);
    b = fma(b, scale, zero);
  }
};

template <int kCodeBits>
struct SealedPages : InOrder {
  static constexpr bool kSealed = true;
  using Keys = SealedKeys<kCodeBits>;
  using Values = SealedValues<kCodeBits>;
};

}  // namespace kvroll::KVROLL_ISA
