// Plans of heed_decode and heed_quantize_kv; the rules are those of core/plan.h.
#ifndef HEED_CORE_PLAN_DECODE_H_
#define HEED_CORE_PLAN_DECODE_H_

#include "core/decode_problem.h"
#include "core/plan.h"

namespace heed::core {

// Offsets in the workspace of a CPU decode call; every part starts at a multiple of 64.
struct DecodeWorkspace {
  std::size_t arrivals_at = 0;   // uint32 for every (sequence, KV head, tile): parts that are done
  std::size_t rotated_q_at = 0;  // fp32 [B, Snew, Hq, D], with rotary only
  std::size_t partial_o_at = 0;  // fp32 [partial rows, Dv]
  std::size_t partial_softmax_at = 0;  // {maximum in log2 units, sum} of each partial row
  std::size_t workers_at = 0;
  std::size_t total_bytes = 0;
};

// False when the bytes overflow.
bool LayOutDecodeWorkspace(const DecodeProblem& problem, std::size_t worker_bytes,
                           std::int64_t num_workers, DecodeWorkspace* layout);

Status PlanDecode(const DecodeProblem& problem, const DeviceFacts& facts, Plan* plan,
                  std::vector<Rejection>* rejections);
Status PlanQuantizeKv(const QuantizeKvProblem& problem, const DeviceFacts& facts, Plan* plan,
                      std::vector<Rejection>* rejections);

std::string Describe(const DecodeProblem& problem);
std::string Describe(const QuantizeKvProblem& problem);

}  // namespace heed::core

#endif  // HEED_CORE_PLAN_DECODE_H_
