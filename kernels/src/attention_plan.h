// Which (row, KV head, split) items a call consists of. Depends on each row's own length only.
#pragma once

#include <vector>

#include "kernels.h"

namespace kvroll {

class AttentionPlan {
 public:
  // Fills the call's items and scratch; both live until the next call on this plan.
  void prepare(AttentionCall& call, std::int64_t rows);

 private:
  std::vector<AttentionItem> items_;
  std::vector<std::int32_t> first_partial_;
  std::vector<std::int32_t> unfinished_;
  std::vector<float> partials_;
};

}  // namespace kvroll
