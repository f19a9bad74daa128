#include "isa_kernels.h"
#include "vec8.h"

namespace kvroll::KVROLL_ISA {

void embed(const WeightView& weight, const std::int32_t* ids, float* out, std::int64_t rows, Pool& pool) {
  parallel_rows(pool, rows, weight.inputs * 8, [&](std::int64_t row) {
    float* to = out + row * weight.inputs;
    const std::int64_t tile = ids[row] / kTileOutputs, lane = ids[row] % kTileOutputs;
    if (weight.kind == WeightKind::kBf16) {
      const auto* packed = static_cast<const std::uint16_t*>(weight.packed) + tile * weight.tile_elements();
      for (std::int64_t k = 0; k < weight.inputs; ++k)
        to[k] = float_of_bits(std::uint32_t{packed[weight.place(lane, k)]} << 16);
    } else {
      const auto* packed = static_cast<const std::int8_t*>(weight.packed) + tile * weight.tile_elements();
      const float scale = weight.scale[ids[row]] * kInt8Shift;
      for (std::int64_t k = 0; k < weight.inputs; ++k)
        to[k] = static_cast<float>(packed[weight.place(lane, k)]) * scale;
    }
  });
}

}  // namespace kvroll::KVROLL_ISA
