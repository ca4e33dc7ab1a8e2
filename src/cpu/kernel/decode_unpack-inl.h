// Rows of any cache format to fp32.
#ifndef HEED_CPU_KERNEL_DECODE_UNPACK_INL_H_
#define HEED_CPU_KERNEL_DECODE_UNPACK_INL_H_

#include "cpu/decode_kernel.h"
#include "cpu/element.h"
#include "cpu/kernel/unroll-inl.h"
#include "device/kv_quant.h"

namespace heed::cpu {

HEED_ALWAYS_INLINE inline float FloatOfBits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// Payload byte of fp8-e4m3, without a branch: its bits are those of a half but for 2^8 in the
// exponent. Subnormals are exact: the half is normalised by a subtraction.
HEED_ALWAYS_INLINE inline float WidenFp8(std::uint8_t byte) {
  const std::uint32_t magnitude = byte & 0x7Fu;
  const std::uint32_t sign = (byte & 0x80u) << 24;
  const float normal = FloatOfBits((magnitude << 20) + (120u << 23));
  // Below 8 the implied one is missing: 2^-6 too much at the doubled exponent 1.
  const float subnormal = FloatOfBits((magnitude << 20) + (121u << 23)) - FloatOfBits(121u << 23);
  float value = magnitude < 8 ? subnormal : normal;
  value = magnitude == 0x7F ? FloatOfBits(0x7FC00000u) : value;
  return FloatOfBits(__builtin_bit_cast(std::uint32_t, value) | sign);
}

template <class Isa>
HEED_ALWAYS_INLINE inline void PadRow(const UnpackArgs& args) {
  for (std::int64_t d = args.num_elems; d % kRowMultiple != 0; ++d) args.destination[d] = 0.0f;
}

template <class Isa>
HEED_ALWAYS_INLINE inline void ScaleGroups(const UnpackArgs& args) {
  if (args.scales == nullptr) return;
  float* group = args.destination;
  for (std::int64_t d = 0; d < args.num_elems; d += args.group_elems) {
    const float scale = args.scales[d / args.group_elems * args.scale_stride_elems];
    for (std::int64_t i = 0; i < args.group_elems; ++i) group[i] *= scale;
    group += args.group_elems;
  }
}

template <class Isa, class Element>
void UnpackElements(const UnpackArgs& args) {
  const auto* row = static_cast<const Element*>(args.row);
  std::int64_t d = 0;
  for (; d + Isa::kLanes <= args.num_elems; d += Isa::kLanes) {
    Isa::StoreUnaligned(args.destination + d, Isa::LoadUnaligned(row + d));
  }
  if (d < args.num_elems) {
    Element last[Isa::kLanes] = {};
    float widened[Isa::kLanes];
    for (std::int64_t i = 0; d + i < args.num_elems; ++i) last[i] = row[d + i];
    Isa::StoreUnaligned(widened, Isa::LoadUnaligned(last));
    for (std::int64_t i = 0; d + i < args.num_elems; ++i) args.destination[d + i] = widened[i];
  }
  PadRow<Isa>(args);
  ScaleGroups<Isa>(args);
}

template <class Isa>
void UnpackFp8(const UnpackArgs& args) {
  const auto* row = static_cast<const std::uint8_t*>(args.row);
  for (std::int64_t d = 0; d < args.num_elems; ++d) args.destination[d] = WidenFp8(row[d]);
  PadRow<Isa>(args);
  ScaleGroups<Isa>(args);
}

template <class Isa>
void UnpackInt4(const UnpackArgs& args) {
  const auto* row = static_cast<const std::uint8_t*>(args.row);
  std::int64_t d = 0;
  for (; d + 1 < args.num_elems; d += 2) {
    const std::uint8_t byte = row[d / 2];
    args.destination[d] = static_cast<float>(static_cast<std::int8_t>(byte << 4) >> 4);
    args.destination[d + 1] = static_cast<float>(static_cast<std::int8_t>(byte) >> 4);
  }
  if (d < args.num_elems) {
    args.destination[d] = static_cast<float>(static_cast<std::int8_t>(row[d / 2] << 4) >> 4);
  }
  PadRow<Isa>(args);
  ScaleGroups<Isa>(args);
}

// Not device::Fp16ToFp32, which other units share.
template <class Isa>
HEED_ALWAYS_INLINE inline float InlineScale(const std::uint8_t* block) {
  Half halves[Isa::kLanes] = {};
  float widened[Isa::kLanes];
  __builtin_memcpy(halves, block, sizeof(Half));
  Isa::StoreUnaligned(widened, Isa::LoadUnaligned(halves));
  return widened[0];
}

// Unpacks whole blocks in place, a last one that the row does not fill through `rest`.
template <class Isa, class UnpackBlock>
HEED_ALWAYS_INLINE inline void UnpackBlocks(const UnpackArgs& args, std::int64_t block_bytes,
                                            UnpackBlock unpack_block) {
  const auto* block = static_cast<const std::uint8_t*>(args.row);
  std::int64_t d = 0;
  for (; d + device::kBlockElems <= args.num_elems; d += device::kBlockElems) {
    unpack_block(block, args.destination + d);
    block += block_bytes;
  }
  if (d < args.num_elems) {
    float rest[device::kBlockElems];
    unpack_block(block, rest);
    for (std::int64_t i = 0; d + i < args.num_elems; ++i) args.destination[d + i] = rest[i];
  }
  PadRow<Isa>(args);
}

template <class Isa>
void UnpackQ8(const UnpackArgs& args) {
  UnpackBlocks<Isa>(args, device::kQ8Bytes, [](const std::uint8_t* block, float* values) {
    const float scale = InlineScale<Isa>(block);
    for (int i = 0; i < device::kBlockElems; ++i) {
      values[i] =
          scale * static_cast<float>(static_cast<std::int8_t>(block[device::kBlockScaleBytes + i]));
    }
  });
}

template <class Isa>
void UnpackQ4(const UnpackArgs& args) {
  constexpr int kHalf = device::kBlockElems / 2;
  UnpackBlocks<Isa>(args, device::kQ4Bytes, [](const std::uint8_t* block, float* values) {
    const float scale = InlineScale<Isa>(block);
    for (int i = 0; i < kHalf; ++i) {
      const int byte = block[device::kBlockScaleBytes + i];
      values[i] = scale * static_cast<float>((byte & 0xF) - device::kQ4Offset);
      values[i + kHalf] = scale * static_cast<float>((byte >> 4) - device::kQ4Offset);
    }
  });
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_DECODE_UNPACK_INL_H_
