// What Python holds: bound memory and the checks that keep a call inside it. Every check runs before the first write.
#pragma once

#include <cstdint>
#include <string>

#include "kernels.h"

namespace kvroll {

enum class Dtype { kFloat32, kBFloat16, kInt32, kInt64, kUint8 };

// A contiguous tensor that the caller keeps alive.
struct Buffer {
  void* data;
  std::int64_t count;
  std::int64_t last_dim;
  Dtype dtype;

  // The typed memory of `need` elements. Throws std::invalid_argument (ValueError) on another dtype or too few.
  float* floats(std::int64_t need, const char* what) const;
  const std::int32_t* ints(std::int64_t need, const char* what) const;
  const std::int64_t* longs(std::int64_t need, const char* what) const;
};

Dtype dtype_of(const std::string& word);
void require(bool condition, const std::string& message);

// Throws when one of the first `count` values is outside [low, high).
template <class Integer>
void require_range(const Integer* values, std::int64_t count, std::int64_t low, std::int64_t high, const char* what);

// Throws when a row names a sequence, length or page that is not there.
void require_readable(const AttentionCall& call, std::int64_t rows, std::int64_t sequences);

WeightKind weight_kind_of(const std::string& word);

KvView kv_view(std::uint8_t* base, std::int64_t num_pages, std::int64_t page_stride, const std::string& format,
               std::int64_t layers, std::int64_t kv_heads, std::int64_t head_dim);

}  // namespace kvroll
