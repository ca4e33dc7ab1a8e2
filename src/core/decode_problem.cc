#include "core/decode_problem.h"

namespace heed::core {

std::uint8_t* KvCacheView::RowBytes(KvSlot at, std::int64_t head) const {
  return static_cast<std::uint8_t*>(rows.data) +
         rows.OffsetElems(at.page, at.slot, head) *
             static_cast<std::int64_t>(DTypeBytes(rows.dtype));
}

float* KvCacheView::Scales(KvSlot at, std::int64_t head) const {
  return static_cast<float*>(scales.data) + scales.OffsetElems(at.page, at.slot, head);
}

DecodeSequence DecodeProblem::SequenceAt(std::int64_t batch) const {
  DecodeSequence sequence;
  sequence.first_new = lengths.At(batch);
  sequence.kv_len = sequence.first_new + (appends() ? attention.shape.max_q_len : 0);
  sequence.first_key = leftpad.present() ? leftpad.At(batch) : 0;
  sequence.cache_row = batch_index.present() ? batch_index.At(batch) : batch;
  return sequence;
}

KvSlot DecodeProblem::SlotOf(const DecodeSequence& sequence, std::int64_t batch,
                             std::int64_t token) const {
  const BlockTableView& table = attention.block_table;
  if (!table.present()) return {sequence.cache_row, token};
  return {table.At(batch, token / table.page_slots), token % table.page_slots};
}

device::KeyRange DecodeProblem::VisibleKeys(const DecodeSequence& sequence,
                                            std::int64_t token) const {
  device::KeyRange keys = device::VisibleKeys(attention.score.window, token,
                                              attention.shape.max_q_len, sequence.kv_len);
  keys.begin = device::Max<device::i64>(keys.begin, sequence.first_key);
  keys.end = device::Max(keys.end, keys.begin);
  return keys;
}

device::KeyRange DecodeProblem::KeysOfAny(const DecodeSequence& sequence) const {
  if (attention.shape.max_q_len == 0) return {};
  device::KeyRange keys = VisibleKeys(sequence, 0);
  const device::KeyRange last = VisibleKeys(sequence, attention.shape.max_q_len - 1);
  // Both ends grow with the query; an early query may see nothing at all.
  return {device::Min(keys.begin, last.begin), device::Max(keys.end, last.end)};
}

}  // namespace heed::core
