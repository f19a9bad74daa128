// Weights of half a byte with scales a block. Each block is summed by itself, one FMA chain an output over K in order,
// and then joins the total with its scale: so a scale costs one FMA a block, not one an element.
#pragma once

#include "gemm_tile.h"
#include "small_float.h"

namespace kvroll::KVROLL_ISA {

// Format: kBlock, kScaleBytes; value(words): fp32 of the lowest half byte of each lane; join(scales, half, sum, x_sum,
// total): the total with the block, `half` the first or second 8 outputs.
template <class Format>
struct Nibbles {
  static constexpr int kRows = 4;  // leaves registers for the words and the table
  static constexpr std::int64_t kBlockBytes = Format::kScaleBytes + kTileOutputs * Format::kBlock / 2;
  using Element = std::uint8_t;

  template <int R>
  static inline void add_inputs(const Element* from, const float* x, std::int64_t inputs, std::int64_t count,
                                Vec8 (&sum)[R][2]) {
    Words8 low = load_words8(from), high = load_words8(from + 32);
    for (std::int64_t j = 0; j < count; ++j, low = next_nibble(low), high = next_nibble(high)) {
      const Vec8 first = Format::value(low), second = Format::value(high);
      for (int r = 0; r < R; ++r) {
        const Vec8 value = splat(x[r * inputs + j]);
        sum[r][0] = fma(first, value, sum[r][0]);
        sum[r][1] = fma(second, value, sum[r][1]);
      }
    }
  }

  template <int R, int T>
  static inline void accumulate(const Element* packed, std::int64_t stride, const float* x, const float* sums,
                                std::int64_t inputs, Block<R, T>& block) {
    const std::int64_t blocks = (inputs + Format::kBlock - 1) / Format::kBlock;
    for (std::int64_t b = 0; b < blocks; ++b)
      for (int t = 0; t < T; ++t) {
        const Element* scales = packed + t * stride + b * kBlockBytes;
        const Element* from = scales + Format::kScaleBytes;
        const std::int64_t first = b * Format::kBlock;
        const std::int64_t end = inputs < first + Format::kBlock ? inputs : first + Format::kBlock;
        Vec8 sum[R][2];
        for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = zeros();
        std::int64_t k = first;
        for (; k + 8 <= end; k += 8, from += 64) {
          prefetch(from + kPrefetchBytes);
          add_inputs<R>(from, x + k, inputs, 8, sum);
        }
        if (k < end) add_inputs<R>(from, x + k, inputs, end - k, sum);
        for (int half = 0; half < 2; ++half)
          for (int r = 0; r < R; ++r)
            block.sum[r][t][half] =
                Format::join(scales, half, sum[r][half], sums + r * blocks + b, block.sum[r][t][half]);
      }
  }
};

}  // namespace kvroll::KVROLL_ISA
