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

// What a weight is packed from, row-major: [outputs, inputs] of its elements (codes of half a byte take one byte each);
// scale: fp32 [outputs] for fp8 and int8, fp16 [outputs, blocks] for int4, E8M0 bytes [outputs, blocks] for mxfp4, else
// null; zero: fp16 [outputs, blocks] for int4, else null; bias: fp32 [outputs] or null.
struct WeightSource {
  WeightKind kind;
  std::int64_t outputs, inputs;
  const void* weight;
  const void* scale;
  const void* zero;
  const float* bias;
};

class PackedWeight {
 public:
  PackedWeight(Arena& arena, const WeightSource& source);
  const WeightView& view() const { return view_; }

 private:
  const float* copy_channels(Arena& arena, const float* from, float factor, std::shared_ptr<void>& owner);

  std::shared_ptr<void> packed_, scale_, bias_;
  WeightView view_;
};

}  // namespace kvroll
