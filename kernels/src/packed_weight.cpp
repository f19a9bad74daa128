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
void pack_tiles(const Element* weight, const WeightView& view, Element* packed) {
  for (std::int64_t output = 0; output < view.outputs; ++output) {
    Element* tile = packed + output / kTileOutputs * view.tile_elements();
    const Element* row = weight + output * view.inputs;
    for (std::int64_t k = 0; k < view.inputs; ++k) tile[view.place(output % kTileOutputs, k)] = row[k];
  }
}

// Codes of one byte each to half bytes; scales and zeros are [outputs][block_count], of `width` bytes each.
void pack_nibbles(const std::uint8_t* codes, const WeightView& view, std::uint8_t* packed) {
  for (std::int64_t output = 0; output < view.outputs; ++output) {
    std::uint8_t* tile = packed + output / kTileOutputs * view.tile_bytes();
    for (std::int64_t k = 0; k < view.inputs; ++k) {
      std::uint8_t& byte = tile[view.nibble_at(output % kTileOutputs, k)];
      byte = static_cast<std::uint8_t>(byte | codes[output * view.inputs + k] << (k % 2 == 0 ? 0 : 4));
    }
  }
}

void pack_block_scales(const std::uint8_t* scales, std::int64_t width, std::int64_t offset, const WeightView& view,
                       std::uint8_t* packed) {
  for (std::int64_t output = 0; output < view.outputs; ++output)
    for (std::int64_t b = 0; b < view.block_count(); ++b) {
      std::uint8_t* block = packed + output / kTileOutputs * view.tile_bytes() + b * view.block_bytes();
      std::memcpy(block + offset + output % kTileOutputs * width, scales + (output * view.block_count() + b) * width,
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

PackedWeight::PackedWeight(Arena& arena, const WeightSource& source)
    : view_{source.kind, nullptr, nullptr, nullptr, source.outputs, source.inputs} {
  packed_ = arena.allocate(static_cast<std::size_t>(view_.tiles() * view_.tile_bytes()));
  view_.packed = packed_.get();
  if (view_.block() > 0) {
    auto* packed = static_cast<std::uint8_t*>(packed_.get());
    const auto* scales = static_cast<const std::uint8_t*>(source.scale);
    pack_nibbles(static_cast<const std::uint8_t*>(source.weight), view_, packed);
    pack_block_scales(scales, source.zero == nullptr ? 1 : 2, 0, view_, packed);
    if (source.zero != nullptr)
      pack_block_scales(static_cast<const std::uint8_t*>(source.zero), 2, 2 * kTileOutputs, view_, packed);
  } else if (view_.element_bytes() == 4) {
    pack_tiles(static_cast<const float*>(source.weight), view_, static_cast<float*>(packed_.get()));
  } else if (view_.element_bytes() == 2) {
    pack_tiles(static_cast<const std::uint16_t*>(source.weight), view_, static_cast<std::uint16_t*>(packed_.get()));
  } else {
    pack_tiles(static_cast<const std::uint8_t*>(source.weight), view_, static_cast<std::uint8_t*>(packed_.get()));
    // What the kernels' loads leave out or add is a power of two: no rounding.
    const float factor = source.kind == WeightKind::kFp8 ? kFp8Factor : 1.0f / kInt8Shift;
    view_.scale = copy_channels(arena, static_cast<const float*>(source.scale), factor, scale_);
  }
  view_.bias = copy_channels(arena, source.bias, 1.0f, bias_);
}

const float* PackedWeight::copy_channels(Arena& arena, const float* from, float factor, std::shared_ptr<void>& owner) {
  if (from == nullptr) return nullptr;
  owner = arena.allocate(static_cast<std::size_t>(view_.tiles() * kTileOutputs) * sizeof(float));
  auto* to = static_cast<float*>(owner.get());
  for (std::int64_t i = 0; i < view_.outputs; ++i) to[i] = from[i] * factor;
  return to;
}

}  // namespace kvroll
