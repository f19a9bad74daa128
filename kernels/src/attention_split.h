// Scores, softmax and weighted sum of one 256-token split for up to four query heads that share a KV head.
#pragma once

#include "attention_formats.h"

namespace kvroll::KVROLL_ISA {

constexpr int kMaxRuns = kSplitTokens / kPageTokens + 1;
constexpr int kHeadsTogether = 4;

// Consecutive tokens of one page.
struct Run {
  const std::uint8_t* k;
  const std::uint8_t* v;
  const float* k_scale;  // one a token, for formats with a scale a vector
  const float* v_scale;
  const std::uint8_t* k_blocks;  // for formats with scales a block: block_stride bytes a token
  const std::uint8_t* v_blocks;
  int first;  // place in the split's score array
  int count;
  bool open;  // of a sealed format: not sealed
};

struct Runs {
  Run run[kMaxRuns];
  int count = 0;
  int tokens = 0;
};

template <class Format, int G>
struct Split {
  static constexpr int kTokens = G <= 3 ? 4 : 2;  // accumulators of a tile: tokens x heads, 12 at most

  alignas(32) float scores[G][kSplitTokens + 8];
  alignas(32) float query[G][kMaxHeadDim];
  float largest[G];
  float total[G];
  std::int64_t block_count;

  // Queries in the lane order that the format's loads give, with the softmax scale and the loads' factor folded in.
  inline void set_query(const float* q, std::int64_t dim, float scale) {
    block_count = (dim + kMxBlock - 1) / kMxBlock;
    for (int h = 0; h < G; ++h)
      for (std::int64_t c = 0; c < dim; c += 16)
        for (int lane = 0; lane < 16; ++lane)
          query[h][c + lane] = q[h * dim + c + Format::element(lane)] * (scale * Format::kFactor);
  }

  template <class Load>
  inline void score_tile(const std::uint8_t* const (&k)[kTokens], const std::uint8_t* const (&blocks)[kTokens],
                         std::int64_t dim, int place) {
    Vec8 sum[kTokens][G];
    for (int u = 0; u < kTokens; ++u)
      for (int h = 0; h < G; ++h) sum[u][h] = zeros();
    for (std::int64_t c = 0; c < dim; c += 16) {
      for (int u = 0; u < kTokens; ++u) {
        Vec8 a, b;
        Load::load_pair(k[u], blocks[u], dim, c, a, b);
        for (int h = 0; h < G; ++h) sum[u][h] = fma(a, load(&query[h][c]), sum[u][h]);
        for (int h = 0; h < G; ++h) sum[u][h] = fma(b, load(&query[h][c + 8]), sum[u][h]);
      }
    }
    if constexpr (kTokens == 4) {
      for (int h = 0; h < G; ++h) sum_lanes4(sum[0][h], sum[1][h], sum[2][h], sum[3][h], &scores[h][place]);
    } else {
      for (int u = 0; u < kTokens; ++u) {
        float heads[4];
        sum_lanes4(sum[u][0], sum[u][1], sum[u][2], sum[u][3], heads);
        for (int h = 0; h < G; ++h) scores[h][place + u] = heads[h];
      }
    }
  }

  template <class Load>
  inline void score_run(const Run& run, const std::uint8_t* next, std::int64_t dim) {
    const std::int64_t bytes = dim * Load::kBits / 8, stride = Load::block_stride(block_count);
    for (int t = 0; t < run.count; t += kTokens) {
      // The last tile repeats the last token; its extra scores are overwritten or cut off.
      const std::uint8_t* k[kTokens];
      const std::uint8_t* blocks[kTokens];
      for (int u = 0; u < kTokens; ++u) {
        const int token = t + u < run.count ? t + u : run.count - 1;
        k[u] = run.k + token * bytes;
        blocks[u] = run.k_blocks + token * stride;
      }
      for (std::int64_t byte = t * bytes; byte < (t + kTokens) * bytes; byte += 64) {
        prefetch(next + byte);
        prefetch_far(run.v + byte);
      }
      score_tile<Load>(k, blocks, dim, run.first + t);
    }
  }

  inline void score(const Runs& runs, std::int64_t dim) {
    for (int i = 0; i < runs.count; ++i) {
      const Run& run = runs.run[i];
      const std::uint8_t* next = i + 1 < runs.count ? runs.run[i + 1].k : runs.run[0].v;
      if constexpr (Format::kSealed) {
        if (run.open)
          score_run<OpenPages>(run, next, dim);
        else
          score_run<typename Format::Keys>(run, next, dim);
      } else {
        score_run<Format>(run, next, dim);
      }
      if constexpr (Format::kVectorScale)
        for (int h = 0; h < G; ++h)
          for (int t = 0; t < run.count; ++t) scores[h][run.first + t] *= run.k_scale[t];
    }
  }

  // scores become e^(score - max); the scales of V and the loads' factor are folded in after the sum. A score that is
  // NaN or infinite (K or the query was) would count as 0 or as all: times 0 it is NaN, and the total takes it.
  inline void soften(const Runs& runs) {
    for (int h = 0; h < G; ++h) {
      float* row = scores[h];
      for (int t = runs.tokens; t % 8 != 0; ++t) row[t] = -3.0e38f;
      Vec8 most = load(row);
      for (int t = 8; t < runs.tokens; t += 8) most = max(most, load(row + t));
      largest[h] = max_lanes(most);
      Vec8 sum = zeros(), no_number = zeros();
      for (int t = 0; t < runs.tokens; t += 8) {
        const Vec8 score = load(row + t), weight = exp8(sub(score, splat(largest[h])));
        no_number = fma(score, zeros(), no_number);
        store(row + t, weight);
        sum = add(sum, weight);
      }
      total[h] = sum_lanes(add(sum, no_number));
      if constexpr (Format::kVectorScale)
        for (int i = 0; i < runs.count; ++i)
          for (int t = 0; t < runs.run[i].count; ++t)
            row[runs.run[i].first + t] *= runs.run[i].v_scale[t] * Format::kFactor;
      else if constexpr (Format::kFactor != 1.0f)
        for (int t = 0; t < runs.tokens; ++t) row[t] *= Format::kFactor;
    }
  }

  template <class Load, int P>
  inline void weigh_run(const Run& run, std::int64_t dim, std::int64_t c, Vec8 (&sum)[G][P][2]) {
    const std::int64_t bytes = dim * Load::kBits / 8, stride = Load::block_stride(block_count);
    const std::uint8_t* v = run.v;
    const std::uint8_t* blocks = run.v_blocks;
    for (int t = 0; t < run.count; ++t, v += bytes, blocks += stride) {
      Vec8 a[P], b[P];
      for (int p = 0; p < P; ++p) Load::load_pair(v, blocks, dim, c + 16 * p, a[p], b[p]);
      for (int h = 0; h < G; ++h) {
        const Vec8 weight = splat(scores[h][run.first + t]);
        for (int p = 0; p < P; ++p) {
          sum[h][p][0] = fma(weight, a[p], sum[h][p][0]);
          sum[h][p][1] = fma(weight, b[p], sum[h][p][1]);
        }
      }
    }
  }

  // out[h][dim] for 16 * P dims from `c` on: one FMA chain per dim, tokens in order.
  template <int P>
  inline void weigh_dims(const Runs& runs, std::int64_t dim, std::int64_t c, float* out) {
    Vec8 sum[G][P][2];
    for (int h = 0; h < G; ++h)
      for (int p = 0; p < P; ++p) sum[h][p][0] = sum[h][p][1] = zeros();
    for (int i = 0; i < runs.count; ++i) {
      if constexpr (Format::kSealed) {
        if (runs.run[i].open)
          weigh_run<OpenPages, P>(runs.run[i], dim, c, sum);
        else
          weigh_run<typename Format::Values, P>(runs.run[i], dim, c, sum);
      } else {
        weigh_run<Format, P>(runs.run[i], dim, c, sum);
      }
    }
    for (int h = 0; h < G; ++h)
      for (int p = 0; p < P; ++p) {
        float lanes[16];
        store(lanes, sum[h][p][0]);
        store(lanes + 8, sum[h][p][1]);
        for (int lane = 0; lane < 16; ++lane) out[h * dim + c + 16 * p + Format::element(lane)] = lanes[lane];
      }
  }

  inline void weigh(const Runs& runs, std::int64_t dim, float* out) {
    constexpr int kPairs = G == 1 ? 4 : G <= 3 ? 2 : 1;  // 8 to 12 accumulators
    std::int64_t c = 0;
    for (; c + 16 * kPairs <= dim; c += 16 * kPairs) weigh_dims<kPairs>(runs, dim, c, out);
    for (; c < dim; c += 16) weigh_dims<1>(runs, dim, c, out);
  }
};

}  // namespace kvroll::KVROLL_ISA
