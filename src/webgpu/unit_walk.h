// The order in which units of a call are computed, which is the order of merging and adding up.
#ifndef HEED_WEBGPU_UNIT_WALK_H_
#define HEED_WEBGPU_UNIT_WALK_H_

#include <algorithm>

#include "core/status.h"
#include "device/mask.h"
#include "webgpu/unit.h"
#include "webgpu/unit_chunks.h"

namespace heed::webgpu {

// Every KV head of every sequence, as a unit without queries and keys yet.
// visit(const Unit&) -> core::Status; the first error ends the walk.
template <class Visit>
core::Status VisitHeads(const core::ForwardProblem& problem, Visit visit) {
  for (std::int64_t batch = 0; batch < problem.shape.batch; ++batch) {
    Unit unit;
    unit.batch = batch;
    unit.sequence = problem.SequenceAt(batch);
    for (unit.kv_head = 0; unit.kv_head < problem.shape.num_kv_heads; ++unit.kv_head) {
      HEED_RETURN_IF_ERROR(visit(unit));
    }
  }
  return {};
}

// All queries of a unit from VisitHeads against some keys of its sequence, divided as the chunks
// say, keys in ascending order. Without keys there are units of queries that see nothing.
template <class Visit>
core::Status VisitUnits(const UnitChunks& chunks, Unit unit, device::KeyRange keys, Visit visit) {
  const std::int64_t q_len = unit.sequence.q_len;
  for (std::int64_t query = 0; query < q_len; query += chunks.queries) {
    unit.first_query = query;
    unit.num_queries = std::min(chunks.queries, q_len - query);
    std::int64_t key = keys.begin;
    do {
      unit.first_key = key;
      unit.num_keys = std::min<std::int64_t>(chunks.keys, keys.end - key);
      HEED_RETURN_IF_ERROR(visit(unit));
      key += chunks.keys;
    } while (key < keys.end);
  }
  return {};
}

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_UNIT_WALK_H_
