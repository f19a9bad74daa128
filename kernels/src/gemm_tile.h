// The walk over tiles and rows that all weight formats share. Each output is one FMA chain over K in order, whatever
// the number of rows or threads, so blocking rows is free to change and results are not.
#pragma once

#include "isa_kernels.h"
#include "vec8.h"

namespace kvroll::KVROLL_ISA {

constexpr int kMaxRows = 6;           // 12 accumulators, 2 weights, 1 activation: what 16 registers hold
constexpr int kPrefetchBytes = 3072;  // 1 KiB was too near (prototype: 25.3 against 21.6 ms)

// Accumulators of R rows x T tiles of 16 outputs.
template <int R, int T>
struct Block {
  Vec8 sum[R][T][2];
};

template <int R, int T>
inline void finish(const WeightView& weight, std::int64_t tile, const Block<R, T>& block, float* out) {
  for (int t = 0; t < T; ++t) {
    const std::int64_t first = (tile + t) * kTileOutputs;
    const std::int64_t count = weight.outputs - first < kTileOutputs ? weight.outputs - first : kTileOutputs;
    for (int r = 0; r < R; ++r) {
      float lanes[kTileOutputs];
      for (int half = 0; half < 2; ++half) {
        Vec8 value = block.sum[r][t][half];
        if (weight.scale != nullptr) value = mul(value, load(weight.scale + first + 8 * half));
        if (weight.bias != nullptr) value = add(value, load(weight.bias + first + 8 * half));
        store(lanes + 8 * half, value);
      }
      std::memcpy(out + r * weight.outputs + first, lanes, static_cast<std::size_t>(count) * sizeof(float));
    }
  }
}

// Format::accumulate<R, T>(tile pointer, tile stride in elements, x, block sums of x, K, block); Format::kRows: the
// most rows of a pass.
template <class Format, int R, int T>
inline void run_block(const WeightView& weight, std::int64_t tile, const float* x, const float* sums, float* out) {
  using Element = typename Format::Element;
  const std::int64_t stride = weight.tile_bytes() / static_cast<std::int64_t>(sizeof(Element));
  const Element* packed = static_cast<const Element*>(weight.packed) + tile * stride;
  Block<R, T> block;
  for (int r = 0; r < R; ++r)
    for (int t = 0; t < T; ++t) block.sum[r][t][0] = block.sum[r][t][1] = zeros();
  Format::template accumulate<R, T>(packed, stride, x, sums, weight.inputs, block);
  finish<R, T>(weight, tile, block, out);
}

template <class Format, int T>
inline void run_rows(const GemmCall& call, std::int64_t tile) {
  const WeightView& weight = call.weight;
  const std::int64_t rows = call.rows;
  // Passes of nearly equal height: 8 rows are 4 + 4, not 6 + 2.
  const std::int64_t passes = (rows + Format::kRows - 1) / Format::kRows;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    const std::int64_t begin = rows * pass / passes;
    const float* from = call.x + begin * weight.inputs;
    const float* sums = call.block_sums + begin * weight.block_count();
    float* to = call.out + begin * weight.outputs;
    switch (rows * (pass + 1) / passes - begin) {
      case 1:
        run_block<Format, 1, T>(weight, tile, from, sums, to);
        break;
      case 2:
        run_block<Format, 2, T>(weight, tile, from, sums, to);
        break;
      case 3:
        run_block<Format, 3, 1>(weight, tile, from, sums, to);
        break;
      case 4:
        run_block<Format, 4, 1>(weight, tile, from, sums, to);
        break;
      case 5:
        run_block<Format, 5, 1>(weight, tile, from, sums, to);
        break;
      default:
        run_block<Format, 6, 1>(weight, tile, from, sums, to);
        break;
    }
  }
}

template <class Format>
inline void run_gemm(const GemmCall& call, Pool& pool) {
  const std::int64_t tiles = call.weight.tiles();
  // Chunks of an even number of tiles: small enough to share a small matrix, large enough to stream.
  std::int64_t chunk = tiles / (pool.threads() * 4) / 2 * 2;
  chunk = chunk < 2 ? 2 : chunk > 16 ? 16 : chunk;
  parallel(pool, (tiles + chunk - 1) / chunk, [&](std::int64_t index) {
    const std::int64_t end = (index + 1) * chunk < tiles ? (index + 1) * chunk : tiles;
    std::int64_t tile = index * chunk;
    // One or two rows need two tiles together for enough independent chains.
    for (; call.rows <= 2 && tile + 2 <= end; tile += 2) run_rows<Format, 2>(call, tile);
    for (; tile < end; ++tile) run_rows<Format, 1>(call, tile);
  });
}

// Formats whose 16 outputs of one input lie together: Format::load(from, low, high).
template <class Format>
struct OneInput {
  static constexpr int kRows = kMaxRows;
  using Element = typename Format::Element;

  template <int R, int T>
  static inline void accumulate(const Element* packed, std::int64_t stride, const float* x, const float*,
                                std::int64_t inputs, Block<R, T>& block) {
    for (std::int64_t k = 0; k < inputs; ++k)
      for (int t = 0; t < T; ++t) {
        const Element* from = packed + t * stride + k * kTileOutputs;
        prefetch(reinterpret_cast<const char*>(from) + kPrefetchBytes);
        Vec8 low, high;
        Format::load(from, low, high);
        for (int r = 0; r < R; ++r) {
          const Vec8 value = splat(x[r * inputs + k]);
          block.sum[r][t][0] = fma(low, value, block.sum[r][t][0]);
          block.sum[r][t][1] = fma(high, value, block.sum[r][t][1]);
        }
      }
  }
};

}  // namespace kvroll::KVROLL_ISA
