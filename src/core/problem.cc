#include "core/problem.h"

namespace heed::core {

Sequence ForwardProblem::SequenceAt(std::int64_t batch) const {
  Sequence sequence;
  if (q_packing == Packing::kPacked) {
    sequence.q_begin = cu_seqlens_q.At(batch);
    sequence.q_slots = cu_seqlens_q.At(batch + 1) - sequence.q_begin;
  } else {
    sequence.q_batch = batch;
    sequence.q_slots = shape.max_q_len;
  }
  sequence.q_len = seqused_q.present() ? seqused_q.At(batch) : sequence.q_slots;

  if (block_table.present()) {
    sequence.kv_slots = seqused_kv.At(batch);
  } else if (kv_packing == Packing::kPacked) {
    sequence.kv_begin = cu_seqlens_kv.At(batch);
    sequence.kv_slots = cu_seqlens_kv.At(batch + 1) - sequence.kv_begin;
  } else {
    sequence.kv_batch = batch;
    sequence.kv_slots = shape.max_kv_len;
  }
  sequence.kv_len = seqused_kv.present() ? seqused_kv.At(batch) : sequence.kv_slots;
  return sequence;
}

std::int64_t ForwardProblem::KvOffsetElems(const RowsView& kv, const Sequence& sequence,
                                           std::int64_t batch, std::int64_t token,
                                           std::int64_t kv_head) const {
  if (!block_table.present()) {
    return kv.OffsetElems(sequence.kv_batch, sequence.kv_begin + token, kv_head);
  }
  const std::int64_t page = block_table.At(batch, token / block_table.page_slots);
  return kv.OffsetElems(page, token % block_table.page_slots, kv_head);
}

}  // namespace heed::core
