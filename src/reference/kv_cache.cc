#include "reference/kv_cache.h"

#include "reference/element.h"

namespace heed::reference {
namespace {

using core::DType;

// Two's complement of the low four bits.
int SignedNibble(int nibble) { return nibble < 8 ? nibble : nibble - 16; }

// Payload element d where the scales stand apart.
double PayloadElement(const core::KvCacheView& cache, core::KvSlot at, std::int64_t head,
                      std::int64_t d) {
  if (cache.layout == HEED_KV_LAYOUT_INTERLEAVED) {
    // 16 slots x D bytes as [group of 4 elements][slot][element]; a row of the tensor holds
    // payload_elems consecutive bytes of that.
    const std::int64_t byte = d / 4 * 64 + at.slot % 16 * 4 + d % 4;
    const core::KvSlot row = {at.page, at.slot - at.slot % 16 + byte / cache.payload_elems};
    return LoadElement(cache.RowBytes(row, head), DType::kI8, byte % cache.payload_elems);
  }
  const std::uint8_t* row = cache.RowBytes(at, head);
  if (cache.format == HEED_KV_INT8) return LoadElement(row, DType::kI8, d);
  if (cache.format == HEED_KV_FP8_E4M3) return LoadElement(row, DType::kF8E4M3, d);
  return SignedNibble(d % 2 == 0 ? row[d / 2] & 0xF : row[d / 2] >> 4);
}

// Element d of a row of blocks of 32.
double BlockElement(const core::KvCacheView& cache, const std::uint8_t* row, std::int64_t d) {
  const bool is_q8 = cache.format == HEED_KV_Q8_0;
  const std::uint8_t* block = row + d / 32 * (is_q8 ? 34 : 18);
  const std::uint16_t bits = static_cast<std::uint16_t>(block[0] | block[1] << 8);
  const double scale = LoadElement(&bits, DType::kF16, 0);
  if (is_q8) return scale * LoadElement(block + 2, DType::kI8, d % 32);
  const std::uint8_t byte = block[2 + d % 16];
  return scale * ((d % 32 < 16 ? byte & 0xF : byte >> 4) - 8);
}

}  // namespace

void LoadKvRow(const core::KvCacheView& cache, core::KvSlot at, std::int64_t head, double* row) {
  const std::uint8_t* bytes = cache.RowBytes(at, head);
  for (std::int64_t d = 0; d < cache.head_dim; ++d) {
    switch (cache.format) {
      case HEED_KV_PLAIN:
        row[d] = LoadElement(bytes, cache.rows.dtype, d);
        break;
      case HEED_KV_Q8_0:
      case HEED_KV_Q4_0:
        row[d] = BlockElement(cache, bytes, d);
        break;
      default: {
        const std::int64_t group = d / (cache.head_dim / cache.num_groups);
        const double scale = cache.Scales(at, head)[group * cache.scale_group_stride_elems];
        row[d] = scale * PayloadElement(cache, at, head, d);
      }
    }
  }
}

}  // namespace heed::reference
