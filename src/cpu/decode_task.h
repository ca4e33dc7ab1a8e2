// One decode task: a tile of query rows against one part of a sequence's keys.
#ifndef HEED_CPU_DECODE_TASK_H_
#define HEED_CPU_DECODE_TASK_H_

#include <atomic>

#include "core/decode_problem.h"
#include "core/decode_split.h"
#include "core/plan_decode.h"
#include "cpu/decode_kernel.h"
#include "cpu/decode_scratch.h"

namespace heed::cpu {

// Softmax of one partial result.
struct PartialSoftmax {
  float max_log2;
  float sum;
};

// What all tasks of a call share.
struct DecodeContext {
  const core::DecodeProblem& problem;
  const DecodeKernel& kernel;
  const core::DecodeTasks& tasks;
  const float* rotated_q = nullptr;  // [B, Snew, Hq, D]; null = q as it is
  std::atomic<std::uint32_t>* arrivals = nullptr;
  float* partial_o = nullptr;
  PartialSoftmax* partial_softmax = nullptr;
};

// The query rows of a task.
struct DecodeRows {
  core::DecodeTask task;
  core::DecodeSequence sequence;
  std::int64_t first_row = 0;  // within the KV head: token * G + head of the group
  int num_rows = 0;

  std::int64_t Token(const core::DecodeProblem& problem, int row) const {
    return (first_row + row) / problem.attention.shape.group;
  }
  std::int64_t QHead(const core::DecodeProblem& problem, int row) const {
    const std::int64_t group = problem.attention.shape.group;
    return task.kv_head * group + (first_row + row) % group;
  }
};

DecodeRows RowsOfTask(const DecodeContext& context, const core::DecodeTask& task);

// Computes the task's part and, when it is the last of its rows to arrive, merges and stores them.
void RunDecodeTask(const DecodeContext& context, const core::DecodeTask& task,
                   const DecodeScratch& scratch);

}  // namespace heed::cpu

#endif  // HEED_CPU_DECODE_TASK_H_
