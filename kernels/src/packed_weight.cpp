#include "packed_weight.h"

#include <sys/mman.h>

#include <algorithm>
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

PackedWeight::PackedWeight(Arena& arena, WeightKind kind, const void* weight, std::int64_t outputs, std::int64_t inputs,
                           const float* scale, const float* bias)
    : view_{kind, nullptr, nullptr, nullptr, outputs, inputs} {
  const auto elements = static_cast<std::size_t>(view_.tiles() * view_.tile_elements());
  const auto channels = static_cast<std::size_t>(view_.tiles() * kTileOutputs) * sizeof(float);
  const auto copy_channels = [&](const float* from, float factor, std::shared_ptr<void>& owner) -> const float* {
    if (from == nullptr) return nullptr;
    owner = arena.allocate(channels);
    auto* to = static_cast<float*>(owner.get());
    for (std::int64_t i = 0; i < outputs; ++i) to[i] = from[i] * factor;
    return to;
  };
  if (kind == WeightKind::kBf16) {
    packed_ = arena.allocate(elements * 2);
    pack_tiles(static_cast<const std::uint16_t*>(weight), view_, static_cast<std::uint16_t*>(packed_.get()));
  } else {
    packed_ = arena.allocate(elements);
    pack_tiles(static_cast<const std::int8_t*>(weight), view_, static_cast<std::int8_t*>(packed_.get()));
  }
  view_.packed = packed_.get();
  view_.scale = copy_channels(scale, 1.0f / kInt8Shift, scale_);
  view_.bias = copy_channels(bias, 1.0f, bias_);
}

}  // namespace kvroll
