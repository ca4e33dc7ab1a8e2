// What a decode call does before it attends: appended rows go into the cache, q is rotated.
#ifndef HEED_CORE_DECODE_APPEND_H_
#define HEED_CORE_DECODE_APPEND_H_

#include "core/decode_problem.h"

namespace heed::core {

// A token's rotated row of k_new and its row of v_new.
void LoadNewRows(const DecodeProblem& problem, std::int64_t batch, std::int64_t token,
                 std::int64_t kv_head, float* key, float* value);

// Writes k_new and v_new of one KV head, sequences in order.
void AppendHead(const DecodeProblem& problem, std::int64_t kv_head);

// q of one KV head's group to rotated fp32 rows [B, Snew, Hq, D].
void RotateQueries(const DecodeProblem& problem, std::int64_t kv_head, float* rotated);

}  // namespace heed::core

#endif  // HEED_CORE_DECODE_APPEND_H_
