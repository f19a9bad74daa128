// How a head's 32 vectors of a page are sealed and read back: asymmetric codes, K per channel over the page, V per
// token in groups of 32 channels (KIVI, arXiv 2402.02750). Scalar like kv_vectors.h, and for the same reason.
#pragma once

#include "kv_vectors.h"

namespace kvroll::KVROLL_ISA {

// One group of `count` values, `stride` apart in memory, as codes `stride` apart; scale and zero are what was stored:
// both NaN where a value is NaN or infinite, with codes of 0.
struct SealedGroup {
  float scale, zero, levels;

  SealedGroup(const float* values, std::int64_t count, std::int64_t stride, float most, std::uint16_t* stored_scale,
              std::uint16_t* stored_zero)
      : levels(most) {
    float low = finite(values[0]), high = low;
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = finite(values[i * stride]);
      const std::uint32_t magnitude = bits_of_float(values[i * stride]) & 0x7fffffffu;
      low = value < low ? value : low;
      high = value > high ? value : high;
      largest = magnitude > largest ? magnitude : largest;
    }
    const bool numbers = largest < 0x7f800000u;
    *stored_zero = numbers ? half_of_float(low) : kHalfNan;
    *stored_scale = numbers ? half_of_float((high - low) / levels) : kHalfNan;
    zero = Half::decode(*stored_zero);
    scale = Half::decode(*stored_scale);
  }

  // Within fp16; -0 becomes +0, so that it does not matter which of the two is the minimum.
  static inline float finite(float value) { return saturate(value, kHalfMax) + 0.0f; }

  inline std::uint8_t code(float value) const {
    const float level = scale > 0.0f ? (finite(value) - zero) / scale : 0.0f;
    const float above = level > 0.0f ? level : 0.0f, bounded = above < levels ? above : levels;
    return static_cast<std::uint8_t>(static_cast<std::int32_t>((bounded + 12582912.0f) - 12582912.0f));
  }
};

inline void pack_codes(const std::uint8_t* codes, std::int64_t dim, std::int64_t bits, std::uint8_t* payload) {
  const std::int64_t each = 8 / bits;
  for (std::int64_t byte = 0; byte < dim / each; ++byte) {
    std::uint32_t packed = 0;
    for (std::int64_t i = 0; i < each; ++i) packed |= std::uint32_t{codes[byte * each + i]} << (bits * i);
    payload[byte] = static_cast<std::uint8_t>(packed);
  }
}

inline std::uint32_t code_at(const std::uint8_t* payload, std::int64_t i, std::int64_t bits) {
  return std::uint32_t{payload[i * bits / 8]} >> (i * bits % 8) & ((1u << bits) - 1);
}

// Seals K (which 0) or V (1) of a layer and head from values [32][head_dim], which are bf16's.
inline void seal_head(const KvView& target, std::int64_t page, std::int64_t layer, int which, std::int64_t head,
                      const float* values) {
  const std::int64_t dim = target.head_dim, bits = target.element_bits();
  const float most = static_cast<float>((1 << bits) - 1);
  std::uint8_t codes[kPageTokens * kMaxHeadDim];
  if (which == 0) {
    std::uint16_t* const scales = target.key_scales(page, layer, head);
    for (std::int64_t c = 0; c < dim; ++c) {
      const SealedGroup group(values + c, kPageTokens, dim, most, scales + c, scales + dim + c);
      for (std::int64_t t = 0; t < kPageTokens; ++t) codes[t * dim + c] = group.code(values[t * dim + c]);
    }
  } else {
    for (std::int64_t t = 0; t < kPageTokens; ++t) {
      std::uint16_t* const scales = target.value_scales(page, layer, head, t);
      for (std::int64_t first = 0; first < dim; first += kMxBlock) {
        const std::int64_t count = dim - first < kMxBlock ? dim - first : kMxBlock, at = t * dim + first;
        std::uint16_t* const pair = scales + 2 * (first / kMxBlock);
        const SealedGroup group(values + at, count, 1, most, pair, pair + 1);
        for (std::int64_t i = 0; i < count; ++i) codes[at + i] = group.code(values[at + i]);
      }
    }
  }
  const std::int64_t index = target.vector(layer, which, head);
  for (std::int64_t t = 0; t < kPageTokens; ++t)
    pack_codes(codes + t * dim, dim, bits, target.payload(page, index + t));
}

// One vector of a sealed page.
inline void unseal_vector(const KvView& source, std::int64_t page, std::int64_t layer, int which, std::int64_t head,
                          std::int64_t token, float* values) {
  const std::int64_t dim = source.head_dim, bits = source.element_bits();
  const std::uint8_t* const payload = source.payload(page, source.vector(layer, which, head) + token);
  const std::uint16_t* const keys = source.key_scales(page, layer, head);
  const std::uint16_t* const pairs = source.value_scales(page, layer, head, token);
  for (std::int64_t i = 0; i < dim; ++i) {
    const std::uint16_t* const pair = pairs + 2 * (i / kMxBlock);
    const float scale = Half::decode(which == 0 ? keys[i] : pair[0]);
    const float zero = Half::decode(which == 0 ? keys[dim + i] : pair[1]);
    values[i] = static_cast<float>(code_at(payload, i, bits)) * scale + zero;
  }
}

// Reads any page's vector, sealed or not.
inline void read_vector(const KvView& source, std::int64_t page, std::int64_t layer, int which, std::int64_t head,
                        std::int64_t token, float* values) {
  if (source.sealed())
    unseal_vector(source, page, layer, which, head, token, values);
  else
    fetch_vector(source, page, source.vector(layer, which, head) + token, values);
}

// Seals K or V of a layer and head from a page of any format, rounded to bf16 first.
inline void seal_from(const KvView& source, std::int64_t source_page, const KvView& target, std::int64_t target_page,
                      std::int64_t layer, int which, std::int64_t head) {
  const std::int64_t dim = target.head_dim;
  float values[kPageTokens * kMaxHeadDim];
  for (std::int64_t t = 0; t < kPageTokens; ++t)
    read_vector(source, source_page, layer, which, head, t, values + t * dim);
  for (std::int64_t i = 0; i < kPageTokens * dim; ++i) values[i] = float_of_bf16(bf16_of_float(values[i]));
  seal_head(target, target_page, layer, which, head, values);
}

}  // namespace kvroll::KVROLL_ISA
