// Validated calls of heed_decode and heed_quantize_kv. Kernels and the oracle read them and check
// nothing again.
#ifndef HEED_CORE_DECODE_PROBLEM_H_
#define HEED_CORE_DECODE_PROBLEM_H_

#include <cstdint>

#include "core/problem.h"
#include "device/mask.h"

namespace heed::core {

// Slots whose bytes HEED_KV_LAYOUT_INTERLEAVED keeps together, and the bytes of one of its groups.
inline constexpr std::int64_t kInterleavedSlots = 16;
inline constexpr std::int64_t kInterleavedBytes = 4;

// Where a token's row is: a page of the pool, or a row of a contiguous cache.
struct KvSlot {
  std::int64_t page = 0;
  std::int64_t slot = 0;
};

// k_cache or v_cache, or what heed_quantize_kv writes.
struct KvCacheView {
  RowsView rows;  // batch axis: page; row axis: slot; elements as stored
  heed_kv_format_t format = HEED_KV_PLAIN;
  heed_kv_layout_t layout = HEED_KV_LAYOUT_ROWS;
  std::int64_t head_dim = 0;
  std::int64_t payload_elems = 0;  // of one row
  RowsView scales;                 // fp32, absent where the format has none apart
  std::int64_t num_groups = 0;
  std::int64_t scale_group_stride_elems = 1;

  // First byte of the row of a slot. In the interleaved layout the row holds bytes of others too.
  std::uint8_t* RowBytes(KvSlot at, std::int64_t head) const;
  float* Scales(KvSlot at, std::int64_t head) const;  // of group 0
};

// Byte of element d of slot `slot` within the rows of its block of kInterleavedSlots, laid end to
// end.
constexpr std::int64_t InterleavedByte(std::int64_t slot, std::int64_t d) {
  return ((d / kInterleavedBytes) * kInterleavedSlots + slot % kInterleavedSlots) *
             kInterleavedBytes +
         d % kInterleavedBytes;
}

// cos and sin, [position, pair].
struct RotaryRule {
  RowsView cos, sin;  // row axis: position; only row_stride_elems and the pair stride count
  std::int64_t pair_stride_elems[2] = {1, 1};  // of cos, of sin
  std::int64_t num_rows = 0;                   // positions
  std::int64_t num_pairs = 0;
  heed_rotary_layout_t layout = HEED_ROTARY_INTERLEAVED;

  bool present() const { return cos.present(); }
};

// One sequence: keys [0, kv_len) of which those before first_key are padding.
struct DecodeSequence {
  std::int64_t kv_len = 0;  // with the appended tokens
  std::int64_t first_key = 0;
  std::int64_t first_new = 0;  // slot of the first appended token
  std::int64_t cache_row = 0;  // of a contiguous cache
};

struct DecodeProblem {
  // q, o, lse, score, shape, block_table and exec. shape.max_q_len is Snew; k and v are absent.
  ForwardProblem attention;
  KvCacheView k, v;
  RowsView k_new, v_new;
  IndexView lengths, batch_index, leftpad;
  std::int64_t capacity_rows = 0;   // slots that a sequence may fill
  std::int64_t num_cache_rows = 0;  // sequences that a contiguous cache holds; pages of a pool
  RotaryRule rotary;
  std::int64_t num_splits = 0;  // 0 = planned

  bool appends() const { return k_new.present(); }
  DecodeSequence SequenceAt(std::int64_t batch) const;
  KvSlot SlotOf(const DecodeSequence& sequence, std::int64_t batch, std::int64_t token) const;
  // Keys that query `token` of a sequence may see by causality, window, length and padding.
  device::KeyRange VisibleKeys(const DecodeSequence& sequence, std::int64_t token) const;
  // Keys that some query of the sequence may see.
  device::KeyRange KeysOfAny(const DecodeSequence& sequence) const;
};

struct QuantizeKvProblem {
  std::int64_t batch = 0, num_slots = 0, num_kv_heads = 0;
  RowsView source;
  KvCacheView target;
  ExecOptions exec;
};

Status BuildDecodeProblem(const heed_decode_args_t* args, Purpose purpose, DecodeProblem* problem);
Status BuildQuantizeKvProblem(const heed_quantize_kv_args_t* args, Purpose purpose,
                              QuantizeKvProblem* problem);

}  // namespace heed::core

#endif  // HEED_CORE_DECODE_PROBLEM_H_
