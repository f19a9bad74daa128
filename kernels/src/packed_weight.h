// A weight in the kernels' layout, in memory that asks for huge pages.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels.h"

namespace kvroll {

// One mapping that several weights share, so that small matrices lie on huge pages too.
class Arena {
 public:
  // Zeroed, 64-byte aligned; the returned owner keeps the mapping.
  std::shared_ptr<void> allocate(std::size_t bytes);

 private:
  std::shared_ptr<void> chunk_;
  std::size_t used_ = 0;
  std::size_t size_ = 0;
};

class PackedWeight {
 public:
  // weight: row-major [outputs, inputs], bf16 bits or int8; scale, bias: [outputs] or null.
  PackedWeight(Arena& arena, WeightKind kind, const void* weight, std::int64_t outputs, std::int64_t inputs,
               const float* scale, const float* bias);
  const WeightView& view() const { return view_; }

 private:
  std::shared_ptr<void> packed_, scale_, bias_;
  WeightView view_;
};

}  // namespace kvroll
