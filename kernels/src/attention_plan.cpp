#include "attention_plan.h"

#include <algorithm>

namespace kvroll {

void AttentionPlan::prepare(AttentionCall& call, std::int64_t rows) {
  const std::int64_t kv_heads = call.pool.kv_heads;
  first_partial_.assign(static_cast<std::size_t>(rows), -1);
  unfinished_.assign(static_cast<std::size_t>(rows * kv_heads), 0);
  items_.clear();
  std::int32_t partials = 0;
  std::int64_t first_split = INT64_MAX, last_split = 0;
  const auto split_range = [&](std::int64_t row) {
    return std::pair{call.first_token(row) / kSplitTokens, (call.row_length[row] - 1) / kSplitTokens};
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto [first, last] = split_range(row);
    first_split = std::min(first_split, first);
    last_split = std::max(last_split, last);
    if (first == last) continue;
    first_partial_[static_cast<std::size_t>(row)] = partials;
    partials += static_cast<std::int32_t>((last - first + 1) * kv_heads);
    std::fill_n(unfinished_.begin() + row * kv_heads, kv_heads, static_cast<std::int32_t>(last - first + 1));
  }
  // Rows innermost: the rows of a prefill find the split's K and V in the cache.
  for (std::int64_t head = 0; head < kv_heads; ++head)
    for (std::int64_t split = first_split; split <= last_split; ++split)
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto [first, last] = split_range(row);
        if (split < first || split > last) continue;
        const std::int64_t base = first_partial_[static_cast<std::size_t>(row)];
        const std::int64_t partial = base < 0 ? -1 : base + head * (last - first + 1) + split - first;
        items_.push_back({static_cast<std::int32_t>(row), static_cast<std::int32_t>(head),
                          static_cast<std::int32_t>(split), static_cast<std::int32_t>(partial)});
      }
  partials_.resize(static_cast<std::size_t>(partials * call.partial_floats()));
  call.items = items_.data();
  call.num_items = static_cast<std::int64_t>(items_.size());
  call.partials = partials_.data();
  call.unfinished = unfinished_.data();
}

}  // namespace kvroll
