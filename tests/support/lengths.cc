#include "support/lengths.h"

#include "support/random.h"

namespace heed::test {
namespace {

// Slots of a packed sequence: the first one is the longest, some are empty.
std::int64_t PickSlots(Random& random, std::int64_t longest, std::size_t sequence) {
  if (sequence == 0) return longest;
  return random.Chance(0.2) ? 0 : random.Below(longest + 1);
}

std::int64_t PickUsed(Random& random, std::int64_t slots) {
  if (random.Chance(0.2)) return 0;
  return random.Chance(0.3) ? slots : random.Below(slots + 1);
}

}  // namespace

Lengths MakeLengths(const ForwardCase& forward_case) {
  Random q_slots(forward_case.seed, "q slots");
  Random kv_slots(forward_case.seed, "kv slots");
  Random used(forward_case.seed, "seqused");
  Lengths lengths;
  lengths.sequences.resize(static_cast<std::size_t>(forward_case.batch));
  if (forward_case.packed_q) lengths.total_q_rows = q_slots.Below(4);
  if (forward_case.packed_kv) lengths.total_kv_rows = kv_slots.Below(4);
  for (std::size_t b = 0; b < lengths.sequences.size(); ++b) {
    SequenceLengths& sequence = lengths.sequences[b];
    sequence.q_slots = sequence.q_len = forward_case.q_len;
    sequence.kv_slots = sequence.kv_len = forward_case.kv_len;
    if (forward_case.packed_q) {
      sequence.q_begin = lengths.total_q_rows;
      sequence.q_slots = sequence.q_len = PickSlots(q_slots, forward_case.q_len, b);
      lengths.total_q_rows += sequence.q_slots;
    }
    if (forward_case.packed_kv) {
      sequence.kv_begin = lengths.total_kv_rows;
      sequence.kv_slots = sequence.kv_len = PickSlots(kv_slots, forward_case.kv_len, b);
      lengths.total_kv_rows += sequence.kv_slots;
    }
    const std::int64_t used_q = PickUsed(used, sequence.q_slots);
    const std::int64_t used_kv = PickUsed(used, sequence.kv_slots);
    if (forward_case.seqused_q) sequence.q_len = used_q;
    if (forward_case.seqused_kv) sequence.kv_len = used_kv;
  }
  if (forward_case.packed_q) lengths.total_q_rows += q_slots.Below(4);
  if (forward_case.packed_kv) lengths.total_kv_rows += kv_slots.Below(4);
  return lengths;
}

bool InsideWindow(const ForwardCase& forward_case, const SequenceLengths& sequence,
                  std::int64_t query, std::int64_t key) {
  const std::int64_t shift = forward_case.top_left ? 0 : sequence.kv_len - sequence.q_len;
  const std::int64_t ahead = key - (query + shift);
  if (forward_case.causal && ahead > 0) return false;
  if (forward_case.window_left >= 0 && -ahead > forward_case.window_left) return false;
  return forward_case.window_right < 0 || ahead <= forward_case.window_right;
}

}  // namespace heed::test
