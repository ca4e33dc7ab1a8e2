#include "core/kv_row.h"

#include <cstring>

#include "device/kv_quant.h"

namespace heed::core {
namespace {

float LargestOf(const float* values, std::int64_t num_elems) {
  float largest = 0.0f;
  for (std::int64_t d = 0; d < num_elems; ++d) {
    largest = device::LargestMagnitude(largest, values[d]);
  }
  return largest;
}

// int8, fp8 and int4, whose scales stand apart.
void StoreScaledRow(const KvCacheView& cache, KvSlot at, std::int64_t head, const float* values) {
  const std::int64_t group_elems = cache.head_dim / cache.num_groups;
  const float limit = cache.format == HEED_KV_INT8       ? device::kInt8Limit
                      : cache.format == HEED_KV_FP8_E4M3 ? device::kFp8Limit
                                                         : device::kInt4Limit;
  float* scales = cache.Scales(at, head);
  for (std::int64_t group = 0; group < cache.num_groups; ++group) {
    const std::int64_t begin = group * group_elems;
    const float scale = LargestOf(values + begin, group_elems) / limit;
    scales[group * cache.scale_group_stride_elems] = scale;
    for (std::int64_t d = begin; d < begin + group_elems; ++d) {
      if (cache.format == HEED_KV_FP8_E4M3) {
        *PayloadByte(cache, at, head, d) = device::QuantizedFp8(values[d], scale);
      } else if (cache.format == HEED_KV_INT8) {
        *PayloadByte(cache, at, head, d) = static_cast<std::uint8_t>(
            device::QuantizedInteger(values[d], scale, device::kInt8Limit));
      } else {
        std::uint8_t* byte = cache.RowBytes(at, head) + d / 2;
        const int nibble = device::QuantizedInteger(values[d], scale, device::kInt4Limit) & 0xF;
        *byte = static_cast<std::uint8_t>(d % 2 == 0 ? nibble : (*byte & 0xF) | nibble << 4);
      }
    }
  }
  // Bytes that fill the last group of four up.
  if (cache.layout == HEED_KV_LAYOUT_ROWS) return;
  for (std::int64_t d = cache.head_dim; d < cache.payload_elems; ++d) {
    *PayloadByte(cache, at, head, d) = 0;
  }
}

// The value of largest magnitude, with its sign.
float ExtremeOf(const float* values, std::int64_t num_elems) {
  const float largest = LargestOf(values, num_elems);
  for (std::int64_t d = 0; d < num_elems; ++d) {
    if (device::Magnitude(values[d]) == largest) return values[d];
  }
  return largest;  // NaN
}

void StoreQ8Block(const float (&values)[device::kBlockElems], std::uint8_t* block) {
  const std::uint16_t bits =
      device::BlockScale(LargestOf(values, device::kBlockElems) / device::kInt8Limit);
  const float scale = device::Fp16ToFp32(bits);
  std::memcpy(block, &bits, sizeof(bits));
  for (int d = 0; d < device::kBlockElems; ++d) {
    block[device::kBlockScaleBytes + d] =
        static_cast<std::uint8_t>(device::QuantizedInteger(values[d], scale, device::kInt8Limit));
  }
}

// Nibbles hold payload + 8; the element of largest magnitude becomes -8. Low nibbles are the first
// half of the block.
void StoreQ4Block(const float (&values)[device::kBlockElems], std::uint8_t* block) {
  constexpr int kHalf = device::kBlockElems / 2;
  const std::uint16_t bits =
      device::BlockScale(ExtremeOf(values, device::kBlockElems) / -device::kQ4Offset);
  const float scale = device::Fp16ToFp32(bits);
  std::memcpy(block, &bits, sizeof(bits));
  const auto nibble = [&](float value) {
    const int payload = device::QuantizedInteger(value, scale, device::kQ4Offset);
    return device::Min(payload, device::kQ4Offset - 1) + device::kQ4Offset;
  };
  for (int d = 0; d < kHalf; ++d) {
    block[device::kBlockScaleBytes + d] =
        static_cast<std::uint8_t>(nibble(values[d]) | nibble(values[d + kHalf]) << 4);
  }
}

// q8_0 and q4_0. Elements past head_dim count as 0.
void StoreBlocks(const KvCacheView& cache, std::uint8_t* row, const float* values) {
  for (std::int64_t begin = 0; begin < cache.head_dim; begin += device::kBlockElems) {
    float block[device::kBlockElems] = {};
    for (std::int64_t d = begin; d < cache.head_dim && d < begin + device::kBlockElems; ++d) {
      block[d - begin] = values[d];
    }
    const bool is_q8 = cache.format == HEED_KV_Q8_0;
    if (is_q8) StoreQ8Block(block, row);
    if (!is_q8) StoreQ4Block(block, row);
    row += is_q8 ? device::kQ8Bytes : device::kQ4Bytes;
  }
}

}  // namespace

std::uint8_t* PayloadByte(const KvCacheView& cache, KvSlot at, std::int64_t head, std::int64_t d) {
  if (cache.layout == HEED_KV_LAYOUT_ROWS) return cache.RowBytes(at, head) + d;
  const std::int64_t byte = InterleavedByte(at.slot, d);
  const std::int64_t first_slot = at.slot / kInterleavedSlots * kInterleavedSlots;
  const KvSlot row = {at.page, first_slot + byte / cache.payload_elems};
  return cache.RowBytes(row, head) + byte % cache.payload_elems;
}

void StoreFloat(void* data, DType dtype, std::int64_t offset_elems, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[offset_elems] = value;
  } else {
    static_cast<std::uint16_t*>(data)[offset_elems] =
        dtype == DType::kF16 ? device::Fp32ToFp16(value) : device::Fp32ToBf16(value);
  }
}

float LoadFloat(const void* data, DType dtype, std::int64_t offset_elems) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[offset_elems];
    case DType::kF16:
      return device::Fp16ToFp32(static_cast<const std::uint16_t*>(data)[offset_elems]);
    case DType::kBF16:
      return device::Bf16ToFp32(static_cast<const std::uint16_t*>(data)[offset_elems]);
    default:
      return 0.0f;
  }
}

void StoreKvRow(const KvCacheView& cache, KvSlot at, std::int64_t head, const float* values) {
  switch (cache.format) {
    case HEED_KV_PLAIN:
      for (std::int64_t d = 0; d < cache.head_dim; ++d) {
        StoreFloat(cache.RowBytes(at, head), cache.rows.dtype, d, values[d]);
      }
      return;
    case HEED_KV_Q8_0:
    case HEED_KV_Q4_0:
      return StoreBlocks(cache, cache.RowBytes(at, head), values);
    default:
      return StoreScaledRow(cache, at, head, values);
  }
}

void RotateRow(const RotaryRule& rotary, std::int64_t position, std::int64_t head_dim,
               float* values) {
  if (!rotary.present() || head_dim < 2 * rotary.num_pairs) return;
  const bool is_split = rotary.layout == HEED_ROTARY_HALF_SPLIT;
  for (std::int64_t pair = 0; pair < rotary.num_pairs; ++pair) {
    float& first = values[is_split ? pair : 2 * pair];
    float& second = values[is_split ? pair + rotary.num_pairs : 2 * pair + 1];
    const double cos =
        LoadFloat(rotary.cos.data, rotary.cos.dtype,
                  position * rotary.cos.row_stride_elems + pair * rotary.pair_stride_elems[0]);
    const double sin =
        LoadFloat(rotary.sin.data, rotary.sin.dtype,
                  position * rotary.sin.row_stride_elems + pair * rotary.pair_stride_elems[1]);
    const double x = first, y = second;
    first = static_cast<float>(x * cos - y * sin);
    second = static_cast<float>(x * sin + y * cos);
  }
}

}  // namespace heed::core
