// What a kernel is called with (plain structs on memory that the caller owns), and the table of one instruction set.
#pragma once

#include <cstdint>

#include "pool.h"

namespace kvroll {

constexpr std::int64_t kTileOutputs = 16;
constexpr std::int64_t kPageTokens = 32;
constexpr std::int64_t kSplitTokens = 256;
constexpr std::int64_t kMaxHeadDim = 256;
constexpr std::int64_t kMxBlock = 32;  // elements of one E8M0 scale; the last block of a vector may be shorter
// int8 weights are read as value * 2^24 (the byte left at the top of 32 bits); powers of two cost no rounding.
constexpr float kInt8Shift = 16777216.0f;
// E4M3 is read as value / 2^8: moved to the bits of fp16, whose exponent bias is 8 more.
constexpr float kFp8Factor = 256.0f;

enum class WeightKind { kFp32, kBf16, kFp16, kFp8, kInt8, kInt4, kMxFp4 };
constexpr int kWeightKinds = 7;

// Whether so many inputs of such a weight can share a scale; 0 where they share none.
constexpr bool has_block(WeightKind kind, std::int64_t block) {
  if (kind == WeightKind::kInt4) return block == 32 || block == 64 || block == 128;
  return block == (kind == WeightKind::kMxFp4 ? kMxBlock : 0);
}

enum class KvKind { kFp32, kBf16, kFp16, kFp8, kInt8, kMxFp8, kKivi4, kKivi2 };

// Packed in tiles of 16 outputs, `step` inputs of one output together: [tile][in / step][16][step], padded with zeros.
// int4 and mxfp4 pack each block of inputs as such a piece of half bytes (8 inputs of an output in 32 bits, the first
// in the low bits) behind its scales: [tile][block]{scale[16], zero[16] (int4 alone), [block / 8][16][8]}.
struct WeightView {
  WeightKind kind;
  const void* packed;
  const float* scale;  // [tiles * 16], for sums of what the kernel's loads give; null where there is none a channel
  const float* bias;   // [tiles * 16] or null
  std::int64_t outputs;
  std::int64_t inputs;
  std::int64_t block;  // inputs that share a scale; 0 where a channel has one or none

  std::int64_t tiles() const { return (outputs + kTileOutputs - 1) / kTileOutputs; }
  std::int64_t block_count() const { return block == 0 ? 0 : (inputs + block - 1) / block; }
  std::int64_t block_scale_bytes() const { return kTileOutputs * (kind == WeightKind::kInt4 ? 4 : 1); }
  std::int64_t block_bytes() const { return block_scale_bytes() + kTileOutputs * block / 2; }
  std::int64_t step() const { return kind == WeightKind::kInt8 ? 4 : kind == WeightKind::kBf16 ? 2 : 1; }
  std::int64_t element_bytes() const {
    if (kind == WeightKind::kFp32) return 4;
    return kind == WeightKind::kBf16 || kind == WeightKind::kFp16 ? 2 : 1;
  }
  std::int64_t tile_elements() const { return kTileOutputs * ((inputs + step() - 1) / step() * step()); }
  std::int64_t tile_bytes() const {
    return block == 0 ? tile_elements() * element_bytes() : block_count() * block_bytes();
  }
  // Place of input k of the tile's output `lane`, in elements; not for block formats.
  std::int64_t place(std::int64_t lane, std::int64_t k) const {
    return k / step() * step() * kTileOutputs + lane * step() + k % step();
  }
  // Where the block that holds input k of the tile begins, and the byte of that input's half byte (low for even k).
  std::int64_t block_at(std::int64_t k) const { return k / block * block_bytes(); }
  std::int64_t nibble_at(std::int64_t lane, std::int64_t k) const {
    const std::int64_t inner = k % block;
    return block_at(k) + block_scale_bytes() + inner / 8 * kTileOutputs * 4 + lane * 4 + inner % 8 / 2;
  }
};

// Page: [layer][K|V][kv_head][token][payload], then the scales [layer][K|V][kv_head][token]: none, one fp32 or, for MX,
// one byte a block. Sealed pages have fp16 scales and zeros by layer: K's [kv_head][scale|zero][head_dim], then V's
// [kv_head][token][group of 32][scale|zero].
struct KvView {
  KvKind kind;
  std::uint8_t* base;
  std::int64_t num_pages;
  std::int64_t page_stride;
  std::int64_t layers;
  std::int64_t kv_heads;
  std::int64_t head_dim;

  bool sealed() const { return kind == KvKind::kKivi4 || kind == KvKind::kKivi2; }
  std::int64_t element_bits() const {
    if (kind == KvKind::kFp32) return 32;
    if (kind == KvKind::kBf16 || kind == KvKind::kFp16) return 16;
    return kind == KvKind::kKivi4 ? 4 : kind == KvKind::kKivi2 ? 2 : 8;
  }
  std::int64_t vector_bytes() const { return head_dim * element_bits() / 8; }
  std::int64_t block_count() const { return (head_dim + kMxBlock - 1) / kMxBlock; }
  std::int64_t scale_bytes() const {
    if (kind == KvKind::kMxFp8) return block_count();
    return kind == KvKind::kFp8 || kind == KvKind::kInt8 ? 4 : 0;
  }
  // Index of the first of the 32 vectors of (layer, K or V, head).
  std::int64_t vector(std::int64_t layer, int which, std::int64_t head) const {
    return ((layer * 2 + which) * kv_heads + head) * kPageTokens;
  }
  std::int64_t vectors() const { return layers * 2 * kv_heads * kPageTokens; }
  std::int64_t payload_bytes() const { return vectors() * vector_bytes(); }
  std::int64_t page_bytes() const {
    return payload_bytes() + (sealed() ? 2 * layers * layer_halves() : scale_bytes() * vectors());
  }
  std::uint8_t* payload(std::int64_t page, std::int64_t index) const {
    return base + page * page_stride + index * vector_bytes();
  }
  std::uint8_t* blocks(std::int64_t page, std::int64_t index) const {
    return base + page * page_stride + payload_bytes() + index * scale_bytes();
  }
  float* scales(std::int64_t page, std::int64_t index) const { return reinterpret_cast<float*>(blocks(page, index)); }

  // Of sealed pages alone, as halves: the scales of a layer, and where a head's (K) or a token's (V) begin.
  std::int64_t layer_halves() const { return kv_heads * 2 * (head_dim + kPageTokens * block_count()); }
  std::uint16_t* key_scales(std::int64_t page, std::int64_t layer, std::int64_t head) const {
    return reinterpret_cast<std::uint16_t*>(base + page * page_stride + payload_bytes()) + layer * layer_halves() +
           head * 2 * head_dim;
  }
  std::uint16_t* value_scales(std::int64_t page, std::int64_t layer, std::int64_t head, std::int64_t token) const {
    return key_scales(page, layer, kv_heads) + (head * kPageTokens + token) * 2 * block_count();
  }
};

// Page storage as a caller binds it: of a sealed format also its open pages, which are what is written.
struct KvPool {
  KvView pages;
  KvView open;
  std::int64_t residual_tokens;

  const KvView& written() const { return pages.sealed() ? open : pages; }
};

struct HeadNormCall {
  float* x;
  const float* weight;  // [head_dim]
  std::int64_t rows, heads, head_dim, row_stride, offset;
  float eps;
};

struct RopeCall {
  float* x;
  const std::int32_t* positions;
  const float* cos;
  const float* sin;
  std::int64_t rows, heads, head_dim, row_stride, offset;
};

struct KvWriteCall {
  KvView pool;
  std::int64_t layer;
  const float* qkv;
  std::int64_t rows, row_stride, k_offset, v_offset;
  const std::int64_t* page_ids;
  const std::int32_t* slots;
};

struct SealCall {
  KvView pages;
  KvView open;
  const std::int64_t* open_page_ids;
  const std::int64_t* page_ids;
  std::int64_t count;
};

// One split of one row for one KV head. partial < 0: the row's only split, written straight to the output.
struct AttentionItem {
  std::int32_t row, kv_head, split, partial;
};

struct AttentionCall {
  KvView pool;
  KvView open;                     // of a sealed format
  std::int64_t residual_tokens;    // likewise
  const std::int64_t* open_table;  // likewise; else null
  std::int64_t layer;
  const float* q;
  std::int64_t q_row_stride;
  float* out;
  std::int64_t heads;
  const std::int64_t* page_table;
  std::int64_t max_pages;
  const std::int32_t* row_sequence;
  const std::int32_t* row_length;
  float scale;
  std::int64_t window;
  const float* sinks;  // one score a query head that has no value, or null
  const AttentionItem* items;
  std::int64_t num_items;
  float* partials;           // [partial][group][max, sum, acc[head_dim]]
  std::int32_t* unfinished;  // [row][kv_head] splits that are still open; whoever closes the last one reduces

  std::int64_t group() const { return heads / pool.kv_heads; }
  std::int64_t partial_floats() const { return group() * (pool.head_dim + 2); }
  std::int64_t first_token(std::int64_t row) const {
    return window > 0 && row_length[row] > window ? row_length[row] - window : 0;
  }
  // Leading pages that the row reads from `pool`; those behind are open (kvroll_core.precision.sealing.sealed_pages).
  std::int64_t sealed_pages(std::int64_t row) const {
    const std::int64_t behind = row_length[row] - 1 - residual_tokens;
    return open_table == nullptr ? max_pages : behind > 0 ? behind / kPageTokens : 0;
  }
};

struct GemmCall {
  WeightView weight;
  const float* x;
  float* out;
  std::int64_t rows;
  float* block_sums;  // scratch [rows][block_count] for formats with a zero a block
};

using Gemm = void (*)(const GemmCall&, Pool&);

struct KernelTable {
  const char* isa;
  Gemm gemm[kWeightKinds];  // by WeightKind
  void (*embed)(const WeightView&, const std::int32_t* ids, float* out, std::int64_t rows, Pool&);
  void (*rms_norm)(const float* x, const float* weight, float* out, std::int64_t rows, std::int64_t n, float eps,
                   Pool&);
  void (*head_norm)(const HeadNormCall&, Pool&);
  void (*add)(float* x, const float* y, std::int64_t count);
  void (*silu_mul)(const float* gate_up, float* out, std::int64_t rows, std::int64_t n, Pool&);
  void (*rope)(const RopeCall&, Pool&);
  void (*kv_write)(const KvWriteCall&, Pool&);
  void (*kivi_seal)(const SealCall&, Pool&);
  void (*paged_attention)(const AttentionCall&, Pool&);
  void (*transcode)(const KvView& source, const KvView& target);
};

namespace avx2 {
const KernelTable& table();
}
namespace plain {
const KernelTable& table();
}

}  // namespace kvroll
