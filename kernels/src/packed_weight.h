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

// Rows of a weight, row-major: [rows, inputs] of its elements (codes of half a byte take one byte each); scale: fp32
// [rows] for fp8 and int8, fp16 [rows, blocks] for int4, E8M0 bytes [rows, blocks] for mxfp4, else null; zero: fp16
// [rows, blocks] for int4, else null.
struct WeightRows {
  std::int64_t first, count;
  const void* weight;
  const void* scale;
  const void* zero;
};

// Packed some rows at a time, so that a weight is never there in both layouts; what is not filled is zero.
class PackedWeight {
 public:
  // bias: fp32 [outputs] or null.
  PackedWeight(Arena& arena, WeightKind kind, std::int64_t outputs, std::int64_t inputs, std::int64_t block,
               const float* bias);
  const WeightView& view() const { return view_; }
  void fill(const WeightRows& rows);

 private:
  std::shared_ptr<void> packed_, scale_, bias_;
  WeightView view_;
};

// Asks for huge pages where the memory has whole ones.
void advise_huge_pages(std::uintptr_t address, std::int64_t bytes);

}  // namespace kvroll
