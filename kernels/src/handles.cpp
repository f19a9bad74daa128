#include "handles.h"

#include <algorithm>
#include <stdexcept>

namespace kvroll {
namespace {

void* memory(const Buffer& buffer, Dtype dtype, std::int64_t need, const char* what, const char* word) {
  require(buffer.dtype == dtype, std::string(what) + " must be " + word);
  require(need >= 0 && need <= buffer.count, std::string(what) + " needs " + std::to_string(need) +
                                                 " elements, the buffer has " + std::to_string(buffer.count));
  return buffer.data;
}

}  // namespace

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

float* Buffer::floats(std::int64_t need, const char* what) const {
  return static_cast<float*>(memory(*this, Dtype::kFloat32, need, what, "fp32"));
}

const std::int32_t* Buffer::ints(std::int64_t need, const char* what) const {
  return static_cast<const std::int32_t*>(memory(*this, Dtype::kInt32, need, what, "int32"));
}

const std::int64_t* Buffer::longs(std::int64_t need, const char* what) const {
  return static_cast<const std::int64_t*>(memory(*this, Dtype::kInt64, need, what, "int64"));
}

Dtype dtype_of(const std::string& word) {
  if (word == "float32") return Dtype::kFloat32;
  if (word == "bfloat16") return Dtype::kBFloat16;
  if (word == "int32") return Dtype::kInt32;
  if (word == "int64") return Dtype::kInt64;
  require(word == "uint8", "a buffer cannot be of dtype " + word);
  return Dtype::kUint8;
}

template <class Integer>
void require_range(const Integer* values, std::int64_t count, std::int64_t low, std::int64_t high, const char* what) {
  for (std::int64_t i = 0; i < count; ++i)
    if (values[i] < low || values[i] >= high)
      throw std::invalid_argument(std::string(what) + " of row " + std::to_string(i) + " must be in [" +
                                  std::to_string(low) + ", " + std::to_string(high) + "), found " +
                                  std::to_string(values[i]));
}

template void require_range(const std::int32_t*, std::int64_t, std::int64_t, std::int64_t, const char*);
template void require_range(const std::int64_t*, std::int64_t, std::int64_t, std::int64_t, const char*);

void require_readable(const AttentionCall& call, std::int64_t rows, std::int64_t sequences) {
  require_range(call.row_sequence, rows, 0, sequences, "sequence");
  require_range(call.row_length, rows, 1, call.max_pages * kPageTokens + 1, "row length");
  for (std::int64_t row = 0; row < rows; ++row) {
    // The rows of one prefill ask for the same pages: only the longest needs a look.
    const bool covered = row + 1 < rows && call.row_sequence[row + 1] == call.row_sequence[row] &&
                         call.row_length[row + 1] >= call.row_length[row] && call.window == 0 &&
                         call.open_table == nullptr;
    if (covered) continue;
    const std::int64_t first = call.first_token(row) / kPageTokens;
    const std::int64_t end = (call.row_length[row] - 1) / kPageTokens + 1;
    const std::int64_t border = std::clamp(call.sealed_pages(row), first, end);
    const std::int64_t at = call.row_sequence[row] * call.max_pages;
    require_range(call.page_table + at + first, border - first, 0, call.pool.num_pages, "page id");
    if (border < end) require_range(call.open_table + at + border, end - border, 0, call.open.num_pages, "page id");
  }
}

WeightKind weight_kind_of(const std::string& word) {
  if (word == "fp32") return WeightKind::kFp32;
  if (word == "bf16") return WeightKind::kBf16;
  if (word == "fp16") return WeightKind::kFp16;
  if (word == "fp8_e4m3") return WeightKind::kFp8;
  if (word == "int8") return WeightKind::kInt8;
  if (word == "int4") return WeightKind::kInt4;
  require(word == "mxfp4", "weights " + word + " have no native kernels");
  return WeightKind::kMxFp4;
}

KvKind kv_kind_of(const std::string& word) {
  if (word == "fp32") return KvKind::kFp32;
  if (word == "bf16") return KvKind::kBf16;
  if (word == "fp16") return KvKind::kFp16;
  if (word == "fp8_e4m3") return KvKind::kFp8;
  if (word == "int8") return KvKind::kInt8;
  if (word == "mxfp8") return KvKind::kMxFp8;
  if (word == "kivi4") return KvKind::kKivi4;
  require(word == "kivi2", "KV format " + word + " has no native kernels");
  return KvKind::kKivi2;
}

KvView kv_view(std::uint8_t* base, std::int64_t num_pages, std::int64_t page_stride, const std::string& format,
               std::int64_t layers, std::int64_t kv_heads, std::int64_t head_dim) {
  require(layers > 0 && kv_heads > 0 && head_dim > 0, "layers, kv_heads and head_dim must be positive");
  require(head_dim % 16 == 0 && head_dim <= kMaxHeadDim, "head_dim must be a multiple of 16, at most 256");
  const KvView view{kv_kind_of(format), base, num_pages, page_stride, layers, kv_heads, head_dim};
  require(page_stride >= view.page_bytes() && page_stride % 4 == 0, "page storage is smaller than the format's pages");
  return view;
}

}  // namespace kvroll
