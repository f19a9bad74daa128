#include "isa_kernels.h"
#include "small_float.h"

namespace kvroll::KVROLL_ISA {

namespace {

// One fp32 rounding at most: what the reference's fp64 gives.
inline float element(const WeightView& weight, const std::uint8_t* tile, std::int64_t output, std::int64_t k) {
  const std::int64_t lane = output % kTileOutputs;
  if (weight.block == 0) {
    const std::uint8_t* from = tile + weight.place(lane, k) * weight.element_bytes();
    switch (weight.kind) {
      case WeightKind::kFp32:
        return *reinterpret_cast<const float*>(from);
      case WeightKind::kBf16:
        return float_of_bits(std::uint32_t{*reinterpret_cast<const std::uint16_t*>(from)} << 16);
      case WeightKind::kFp16:
        return Half::decode(*reinterpret_cast<const std::uint16_t*>(from));
      case WeightKind::kFp8:
        return E4m3::decode(*from) * (weight.scale[output] / kFp8Factor);
      default:
        return static_cast<float>(*reinterpret_cast<const std::int8_t*>(from)) * (weight.scale[output] * kInt8Shift);
    }
  }
  const std::uint8_t* scales = tile + weight.block_at(k);
  const std::uint32_t code = std::uint32_t{tile[weight.nibble_at(lane, k)]} >> (k % 2 == 0 ? 0 : 4) & 15u;
  if (weight.kind == WeightKind::kMxFp4) return E2m1::decode(code) * float_of_e8m0(scales[lane]);
  const auto* halves = reinterpret_cast<const std::uint16_t*>(scales);
  return static_cast<float>(code) * Half::decode(halves[lane]) + Half::decode(halves[kTileOutputs + lane]);
}

}  // namespace

void embed(const WeightView& weight, const std::int32_t* ids, float* out, std::int64_t rows, Pool& pool) {
  parallel_rows(pool, rows, weight.inputs * 8, [&](std::int64_t row) {
    const std::uint8_t* tile =
        static_cast<const std::uint8_t*>(weight.packed) + ids[row] / kTileOutputs * weight.tile_bytes();
    for (std::int64_t k = 0; k < weight.inputs; ++k) out[row * weight.inputs + k] = element(weight, tile, ids[row], k);
  });
}

}  // namespace kvroll::KVROLL_ISA
