// How attention reads each KV format: 16 elements of a head vector as two vectors of fp32 lanes.
//
// kBytes: bytes of an element. kVectorScale: an fp32 scale a vector, applied to scores and weights, not to elements.
// kFactor: lanes are the stored values divided by this power of two. element(lane): where lane i of a loaded pair
// (first vector 0..7, second 8..15) stands in memory. load_pair(vector, blocks, c, a, b): elements c .. c + 15 of a
// vector whose block scales, where the format has them, begin at `blocks`.
#pragma once

#include "kernels.h"
#include "small_float.h"

namespace kvroll::KVROLL_ISA {

struct InOrder {
  static constexpr bool kVectorScale = false;
  static constexpr float kFactor = 1.0f;
  static inline int element(int lane) { return lane; }
};

struct Fp32Pages : InOrder {
  static constexpr int kBytes = 4;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t c, Vec8& a, Vec8& b) {
    a = load(reinterpret_cast<const float*>(vector) + c);
    b = load(reinterpret_cast<const float*>(vector) + c + 8);
  }
};

struct Bf16Pages : InOrder {
  static constexpr int kBytes = 2;
  static inline int element(int lane) { return lane < 8 ? 2 * lane : 2 * (lane - 8) + 1; }
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t c, Vec8& a, Vec8& b) {
    load_bf16x16(reinterpret_cast<const std::uint16_t*>(vector) + c, a, b);
  }
};

struct Fp16Pages : InOrder {
  static constexpr int kBytes = 2;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t c, Vec8& a, Vec8& b) {
    load_fp16x16(reinterpret_cast<const std::uint16_t*>(vector) + c, a, b);
  }
};

struct Int8Pages : InOrder {
  static constexpr int kBytes = 1;
  static constexpr bool kVectorScale = true;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t c, Vec8& a, Vec8& b) {
    load_int8x16(reinterpret_cast<const std::int8_t*>(vector) + c, a, b);
  }
};

struct Fp8Pages : InOrder {
  static constexpr int kBytes = 1;
  static constexpr bool kVectorScale = true;
  static constexpr float kFactor = kFp8Factor;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t*, std::int64_t c, Vec8& a, Vec8& b) {
    load_e4m3x16(vector + c, a, b);
  }
};

struct MxFp8Pages : InOrder {
  static constexpr int kBytes = 1;
  static constexpr float kFactor = kFp8Factor;
  static inline void load_pair(const std::uint8_t* vector, const std::uint8_t* blocks, std::int64_t c, Vec8& a,
                               Vec8& b) {
    load_e4m3x16(vector + c, a, b);
    const Vec8 scale = splat(float_of_e8m0(blocks[c / kMxBlock]));  // a power of two: no rounding
    a = mul(a, scale);
    b = mul(b, scale);
  }
};

}  // namespace kvroll::KVROLL_ISA
