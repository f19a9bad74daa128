#include "attention_split.h"
#include "isa_kernels.h"

namespace kvroll::KVROLL_ISA {
namespace {

// Tokens slot .. slot + count - 1 of a page; `open`: of a sealed format, a page that is not sealed.
inline Run run_of(const AttentionCall& call, std::int64_t kv_head, std::int64_t page, std::int64_t slot, int first,
                  int count, bool open) {
  const KvView& kv = open ? call.open : call.pool;
  const std::int64_t k = kv.vector(call.layer, 0, kv_head) + slot, v = kv.vector(call.layer, 1, kv_head) + slot;
  Run run{kv.payload(page, k),
          kv.payload(page, v),
          kv.scales(page, k),
          kv.scales(page, v),
          kv.blocks(page, k),
          kv.blocks(page, v),
          first,
          count,
          open};
  if (kv.sealed()) {
    run.k_blocks = reinterpret_cast<const std::uint8_t*>(kv.key_scales(page, call.layer, kv_head));
    run.v_blocks = reinterpret_cast<const std::uint8_t*>(kv.value_scales(page, call.layer, kv_head, slot));
  }
  return run;
}

inline Runs find_runs(const AttentionCall& call, const AttentionItem& item) {
  const std::int64_t row_at = call.row_sequence[item.row] * call.max_pages;
  const std::int64_t sealed = call.sealed_pages(item.row);
  const std::int64_t split_begin = item.split * kSplitTokens, split_end = split_begin + kSplitTokens;
  const std::int64_t first = call.first_token(item.row), length = call.row_length[item.row];
  std::int64_t token = first > split_begin ? first : split_begin;
  const std::int64_t end = length < split_end ? length : split_end;
  Runs runs;
  while (token < end) {
    const std::int64_t index = token / kPageTokens, slot = token % kPageTokens;
    const std::int64_t count = end - token < kPageTokens - slot ? end - token : kPageTokens - slot;
    const bool open = index >= sealed;
    const std::int64_t page = (open ? call.open_table : call.page_table)[row_at + index];
    runs.run[runs.count++] = run_of(call, item.kv_head, page, slot, runs.tokens, static_cast<int>(count), open);
    runs.tokens += static_cast<int>(count);
    token += count;
  }
  return runs;
}

// What the weighted sum of a head is multiplied with: 1 / (total + e^(sink - largest)). `largest` rises to the sink's
// score where that is larger, so nothing overflows; without that rise the factor is e^0 = 1 exactly.
inline float inverse_total(const AttentionCall& call, std::int64_t head, float largest, float total) {
  if (call.sinks == nullptr) return 1.0f / total;
  const float sink = call.sinks[head], top = sink > largest ? sink : largest;
  float own[8], other[8];
  store(own, exp8(splat(largest - top)));
  store(other, exp8(splat(sink - top)));
  return own[0] / (total * own[0] + other[0]);
}

template <class Format, int G>
inline void attend(const AttentionCall& call, const AttentionItem& item, const Runs& runs, std::int64_t first_head) {
  const std::int64_t dim = call.pool.head_dim, head = item.kv_head * call.group() + first_head;
  Split<Format, G> split;
  alignas(32) float sums[G * kMaxHeadDim];
  split.set_query(call.q + item.row * call.q_row_stride + head * dim, dim, call.scale);
  split.score(runs, dim);
  split.soften(runs);
  split.weigh(runs, dim, sums);
  for (int h = 0; h < G; ++h) {
    const float* from = sums + h * dim;
    if (item.partial < 0) {
      const float inverse = inverse_total(call, head + h, split.largest[h], split.total[h]);
      float* to = call.out + (item.row * call.heads + head + h) * dim;
      for (std::int64_t i = 0; i < dim; ++i) to[i] = from[i] * inverse;
    } else {
      float* to = call.partials + item.partial * call.partial_floats() + (first_head + h) * (dim + 2);
      to[0] = split.largest[h];
      to[1] = split.total[h];
      std::memcpy(to + 2, from, static_cast<std::size_t>(dim) * sizeof(float));
    }
  }
}

template <class Format>
inline void attend_group(const AttentionCall& call, const AttentionItem& item, const Runs& runs) {
  const std::int64_t group = call.group();
  for (std::int64_t first = 0; first < group; first += kHeadsTogether) {
    switch (group - first) {
      case 1:
        attend<Format, 1>(call, item, runs, first);
        break;
      case 2:
        attend<Format, 2>(call, item, runs, first);
        break;
      case 3:
        attend<Format, 3>(call, item, runs, first);
        break;
      default:
        attend<Format, 4>(call, item, runs, first);
        break;
    }
  }
}

// Joins the splits of one row and KV head in the order of their tokens, whoever finished last.
inline void reduce(const AttentionCall& call, const AttentionItem& item, std::int64_t first_partial,
                   std::int64_t count) {
  const std::int64_t dim = call.pool.head_dim, group = call.group();
  for (std::int64_t h = 0; h < group; ++h) {
    const float* partial = call.partials + first_partial * call.partial_floats() + h * (dim + 2);
    float largest = partial[0];
    for (std::int64_t i = 1; i < count; ++i) {
      const float other = partial[i * call.partial_floats()];
      largest = other > largest ? other : largest;
    }
    alignas(32) float sums[kMaxHeadDim] = {};
    float total = 0.0f;
    for (std::int64_t i = 0; i < count; ++i, partial += call.partial_floats()) {
      float lanes[8];
      store(lanes, exp8(splat(partial[0] - largest)));
      total += partial[1] * lanes[0];
      for (std::int64_t d = 0; d < dim; ++d) sums[d] += partial[2 + d] * lanes[0];
    }
    const std::int64_t head = item.kv_head * group + h;
    const float inverse = inverse_total(call, head, largest, total);
    float* to = call.out + (item.row * call.heads + head) * dim;
    for (std::int64_t d = 0; d < dim; ++d) to[d] = sums[d] * inverse;
  }
}

inline void finish_item(const AttentionCall& call, const AttentionItem& item) {
  if (item.partial < 0) return;
  std::int32_t* open = call.unfinished + item.row * call.pool.kv_heads + item.kv_head;
  if (__atomic_sub_fetch(open, 1, __ATOMIC_ACQ_REL) != 0) return;
  const std::int64_t first_split = call.first_token(item.row) / kSplitTokens;
  const std::int64_t last_split = (call.row_length[item.row] - 1) / kSplitTokens;
  reduce(call, item, item.partial - (item.split - first_split), last_split - first_split + 1);
}

template <class Format>
inline void run_items(const AttentionCall& call, Pool& pool) {
  // Few claims for many small items (prefill), one item a claim for long contexts.
  const std::int64_t wanted = pool.threads() * 16;
  const std::int64_t chunk = (call.num_items + wanted - 1) / wanted;
  if (chunk == 0) return;
  parallel(pool, (call.num_items + chunk - 1) / chunk, [&](std::int64_t index) {
    const std::int64_t end = (index + 1) * chunk < call.num_items ? (index + 1) * chunk : call.num_items;
    for (std::int64_t i = index * chunk; i < end; ++i) {
      attend_group<Format>(call, call.items[i], find_runs(call, call.items[i]));
      finish_item(call, call.items[i]);
    }
  });
}

}  // namespace

void paged_attention(const AttentionCall& call, Pool& pool) {
  switch (call.pool.kind) {
    case KvKind::kFp32:
      return run_items<Fp32Pages>(call, pool);
    case KvKind::kBf16:
      return run_items<Bf16Pages>(call, pool);
    case KvKind::kFp16:
      return run_items<Fp16Pages>(call, pool);
    case KvKind::kFp8:
      return run_items<Fp8Pages>(call, pool);
    case KvKind::kInt8:
      return run_items<Int8Pages>(call, pool);
    case KvKind::kMxFp8:
      return run_items<MxFp8Pages>(call, pool);
    case KvKind::kKivi4:
      return run_items<SealedPages<4>>(call, pool);
    case KvKind::kKivi2:
      return run_items<SealedPages<2>>(call, pool);
  }
}

}  // namespace kvroll::KVROLL_ISA
