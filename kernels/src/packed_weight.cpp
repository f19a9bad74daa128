#include "packed_weight.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace kvroll {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kChunk = std::size_t{16} << 20;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

std::shared_ptr<void> map_chunk(std::size_t bytes) {
  // Mapped with room to start on a huge page border; the unused rim is never touched.
  const std::size_t total = bytes + kHugePage;
  void* const raw = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  void* const begin = reinterpret_cast<void*>(round_up(reinterpret_cast<std::size_t>(raw), kHugePage));
  madvise(begin, bytes, MADV_HUGEPAGE);
  const std::shared_ptr<void> mapping(raw, [total](void* address) { munmap(address, total); });
  return {mapping, begin};
}

template <class Element>
void pack_tiles(const WeightRows& rows, const WeightView& view, void* packed) {
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t output = rows.first + r;
    Element* tile = static_cast<Element*>(packed) + output / kTileOutputs * view.tile_elements();
    const Element* row = static_cast<const Element*>(rows.weight) + r * view.inputs;
    for (std::int64_t k = 0; k < view.inputs; ++k) tile[view.place(output % kTileOutputs, k)] = row[k];
  }
}

// Codes of one byte each to half bytes.
void pack_nibbles(const WeightRows& rows, const WeightView& view, std::uint8_t* packed) {
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t output = rows.first + r;
    std::uint8_t* tile = packed + output / kTileOutputs * view.tile_bytes();
    const auto* codes = static_cast<const std::uint8_t*>(rows.weight) + r * view.inputs;
    for (std::int64_t k = 0; k < view.inputs; k += 2) {
      const int high = k + 1 < view.inputs ? codes[k + 1] : 0;
      tile[view.nibble_at(output % kTileOutputs, k)] = static_cast<std::uint8_t>(codes[k] | high << 4);
    }
  }
}

// Scales or zeros [rows][block_count] of `width` bytes each, `offset` bytes into their block.
void pack_block_scales(const WeightRows& rows, const void* from, std::int64_t width, std::int64_t offset,
                       const WeightView& view, std::uint8_t* packed) {
  const auto* scales = static_cast<const std::uint8_t*>(from);
  for (std::int64_t r = 0; r < rows.count; ++r)
    for (std::int64_t b = 0; b < view.block_count(); ++b) {
      const std::int64_t output = rows.first + r;
      std::uint8_t* block = packed + output / kTileOutputs * view.tile_bytes() + b * view.block_bytes();
      std::memcpy(block + offset + output % kTileOutputs * width, scales + (r * view.block_count() + b) * width,
                  static_cast<std::size_t>(width));
    }
}

}  // namespace

std::shared_ptr<void> Arena::allocate(std::size_t bytes) {
  bytes = round_up(std::max<std::size_t>(bytes, 1), 64);
  if (used_ + bytes > size_) {
    size_ = round_up(std::max(bytes, kChunk), kHugePage);
    chunk_ = map_chunk(size_);
    used_ = 0;
  }
  void* const address = static_cast<char*>(chunk_.get()) + used_;
  used_ += bytes;
  return {chunk_, address};
}

PackedWeight::PackedWeight(Arena& arena, WeightKind kind, std::int64_t outputs, std::int64_t inputs, std::int64_t block,
                           const float* bias)
    : view_{kind, nullptr, nullptr, nullptr, outputs, inputs, block} {
  packed_ = arena.allocate(static_cast<std::size_t>(view_.tiles() * view_.tile_bytes()));
  view_.packed = packed_.get();
  const std::size_t channels = static_cast<std::size_t>(view_.tiles() * kTileOutputs) * sizeof(float);
  if (block == 0 && view_.element_bytes() == 1) {
    scale_ = arena.allocate(channels);
    view_.scale = static_cast<const float*>(scale_.get());
  }
  if (bias != nullptr) {
    bias_ = arena.allocate(channels);
    std::memcpy(bias_.get(), bias, static_cast<std::size_t>(outputs) * sizeof(float));
    view_.bias = static_cast<const float*>(bias_.get());
  }
}

void PackedWeight::fill(const WeightRows& rows) {
  if (view_.block > 0) {
    auto* packed = static_cast<std::uint8_t*>(packed_.get());
    const std::int64_t width = view_.kind == WeightKind::kInt4 ? 2 : 1;
    pack_nibbles(rows, view_, packed);
    pack_block_scales(rows, rows.scale, width, 0, view_, packed);
    if (rows.zero != nullptr) pack_block_scales(rows, rows.zero, width, width * kTileOutputs, view_, packed);
  } else if (view_.element_bytes() == 4) {
    pack_tiles<float>(rows, view_, packed_.get());
  } else if (view_.element_bytes() == 2) {
    pack_tiles<std::uint16_t>(rows, view_, packed_.get());
  } else {
    pack_tiles<std::uint8_t>(rows, view_, packed_.get());
    // What the kernels' loads leave out or add is a power of two: no rounding.
    const float factor = view_.kind == WeightKind::kFp8 ? kFp8Factor : 1.0f / kInt8Shift;
    const auto* from = static_cast<const float*>(rows.scale);
    auto* to = static_cast<float*>(scale_.get()) + rows.first;
    for (std::int64_t i = 0; i < rows.count; ++i) to[i] = from[i] * factor;
  }
}

void advise_huge_pages(std::uintptr_t address, std::int64_t bytes) {
  const std::uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t end = (address + static_cast<std::uintptr_t>(bytes)) / kHugePage * kHugePage;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace kvroll
