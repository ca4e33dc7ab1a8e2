#include "webgpu/key_rows.h"

#include <cstring>

#include "core/kv_row.h"
#include "device/float16.h"
#include "device/kv_quant.h"
#include "webgpu/unit_chunks.h"

namespace heed::webgpu {
namespace {

using core::KvCacheView;
using core::KvSlot;

std::int64_t NumGroups(std::int64_t num_elems) {
  return device::CeilDiv<std::int64_t>(num_elems, 4);
}

bool HasBlocks(const KvCacheView& cache) {
  return cache.format == HEED_KV_Q8_0 || cache.format == HEED_KV_Q4_0;
}

std::int64_t BlockBytes(const KvCacheView& cache) {
  return cache.format == HEED_KV_Q8_0 ? device::kQ8Bytes : device::kQ4Bytes;
}

// One row of a quantised cache.
struct CacheRow {
  const KvCacheView& cache;
  KvSlot at;
  std::int64_t head;

  std::uint8_t ByteAt(std::int64_t d) const { return *core::PayloadByte(cache, at, head, d); }
  // Every format but fp8.
  std::int32_t IntegerAt(std::int64_t d) const {
    switch (cache.format) {
      case HEED_KV_INT4: {
        const std::uint8_t byte = ByteAt(d / 2);
        const std::int32_t nibble = d % 2 == 0 ? byte & 0xF : byte >> 4;
        return nibble < 8 ? nibble : nibble - 16;
      }
      case HEED_KV_Q4_0: {
        constexpr std::int64_t kHalf = device::kBlockElems / 2;
        const std::int64_t block = d / device::kBlockElems * device::kQ4Bytes;
        const std::uint8_t byte = ByteAt(block + device::kBlockScaleBytes + d % kHalf);
        const std::int32_t nibble = d % device::kBlockElems < kHalf ? byte & 0xF : byte >> 4;
        return nibble - device::kQ4Offset;
      }
      case HEED_KV_Q8_0: {
        const std::int64_t block = d / device::kBlockElems * device::kQ8Bytes;
        return static_cast<std::int8_t>(
            ByteAt(block + device::kBlockScaleBytes + d % device::kBlockElems));
      }
      default:
        return static_cast<std::int8_t>(ByteAt(d));
    }
  }
  float NumberAt(std::int64_t d) const {
    return cache.format == HEED_KV_FP8_E4M3 ? device::Fp8E4m3ToFp32(ByteAt(d))
                                            : static_cast<float>(IntegerAt(d));
  }
  float ScaleAt(std::int64_t scale) const {
    if (!HasBlocks(cache)) return cache.Scales(at, head)[scale * cache.scale_group_stride_elems];
    const std::uint8_t* block = cache.RowBytes(at, head) + scale * BlockBytes(cache);
    return device::Fp16ToFp32(static_cast<std::uint16_t>(block[0] | block[1] << 8));
  }
};

// The shader takes one scale for 4 elements.
bool FitsInt8(const KvCacheView& cache) {
  if (cache.format == HEED_KV_PLAIN || cache.format == HEED_KV_FP8_E4M3) return false;
  return HasBlocks(cache) || cache.num_groups == 1 || cache.head_dim / cache.num_groups % 4 == 0;
}

void PackIntegers(const CacheRow& row, std::int64_t num_elems, std::uint32_t* target) {
  auto* bytes = reinterpret_cast<std::int8_t*>(target);
  if (row.cache.format == HEED_KV_INT8 && row.cache.layout == HEED_KV_LAYOUT_ROWS) {
    std::memcpy(bytes, row.cache.RowBytes(row.at, row.head), static_cast<std::size_t>(num_elems));
    return;
  }
  for (std::int64_t d = 0; d < num_elems; ++d)
    bytes[d] = static_cast<std::int8_t>(row.IntegerAt(d));
}

}  // namespace

KeyRows::KeyRows(const core::ForwardProblem& problem) : problem_(problem) {}

KeyRows::KeyRows(const core::ForwardProblem& problem, const core::DecodeProblem& decode)
    : problem_(problem), decode_(&decode) {
  if (decode.k.format == HEED_KV_PLAIN) return;
  storage_ = FitsInt8(decode.k) && FitsInt8(decode.v) ? KeyStorage::kInt8 : KeyStorage::kFp32;
}

const core::RowsView& KeyRows::View(KeySide side) const {
  return side == KeySide::kKey ? problem_.k : problem_.v;
}

std::int64_t KeyRows::HeadDim(KeySide side) const {
  return side == KeySide::kKey ? problem_.shape.head_dim : problem_.shape.head_dim_v;
}

const KvCacheView& KeyRows::Cache(KeySide side) const {
  return side == KeySide::kKey ? decode_->k : decode_->v;
}

std::int64_t KeyRows::NumScales(KeySide side) const {
  const KvCacheView& cache = Cache(side);
  return HasBlocks(cache) ? device::CeilDiv<std::int64_t>(cache.head_dim, device::kBlockElems)
                          : cache.num_groups;
}

std::int64_t KeyRows::ElementWords() const {
  switch (storage_) {
    case KeyStorage::kInt8:
      return 1;
    case KeyStorage::kFp32:
      return 4;
    case KeyStorage::kStored:
      break;
  }
  return GroupWords(problem_.k.dtype);
}

std::int64_t KeyRows::RowWords(KeySide side) const {
  const std::int64_t words = NumGroups(HeadDim(side)) * ElementWords();
  return storage_ == KeyStorage::kInt8 ? words + NumScales(side) : words;
}

std::int64_t KeyRows::GroupsPerScale(KeySide side) const {
  if (storage_ != KeyStorage::kInt8) return 1;
  if (HasBlocks(Cache(side))) return device::kBlockElems / 4;
  return NumGroups(HeadDim(side)) / NumScales(side);
}

void KeyRows::Pack(KeySide side, const Unit& unit, std::int64_t key, std::uint32_t* target) const {
  const std::int64_t head_dim = HeadDim(side);
  if (storage_ == KeyStorage::kStored) {
    const core::RowsView& view = View(side);
    const auto elem_bytes = static_cast<std::int64_t>(core::DTypeBytes(view.dtype));
    const std::int64_t offset_elems =
        problem_.KvOffsetElems(view, unit.sequence, unit.batch, key, unit.kv_head);
    std::memcpy(target, static_cast<const char*>(view.data) + offset_elems * elem_bytes,
                static_cast<std::size_t>(head_dim * elem_bytes));
    return;
  }
  const KvCacheView& cache = Cache(side);
  const KvSlot at = decode_->SlotOf(decode_->SequenceAt(unit.batch), unit.batch, key);
  const CacheRow row = {cache, at, unit.kv_head};
  const std::int64_t num_scales = NumScales(side);
  if (storage_ == KeyStorage::kInt8) {
    PackIntegers(row, head_dim, target);
    for (std::int64_t scale = 0; scale < num_scales; ++scale) {
      target[NumGroups(head_dim) + scale] = device::BitsOfFp32(row.ScaleAt(scale));
    }
    return;
  }
  const std::int64_t elems_per_scale =
      HasBlocks(cache) ? std::int64_t{device::kBlockElems} : head_dim / num_scales;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    target[d] = device::BitsOfFp32(row.ScaleAt(d / elems_per_scale) * row.NumberAt(d));
  }
}

}  // namespace heed::webgpu
