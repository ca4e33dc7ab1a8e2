#include "cuda/batch_slices.h"

#include <algorithm>
#include <cinttypes>

#include "core/tensor_info.h"

namespace heed::cuda {

using core::ForwardProblem;
using core::Status;

namespace {

void Advance(void** data, std::int64_t num_elems, core::DType dtype) {
  if (*data == nullptr) return;
  const auto element_bytes = static_cast<std::int64_t>(core::DTypeBytes(dtype));
  *data = static_cast<char*>(*data) + num_elems * element_bytes;
}

// Packed operands have batch stride 0 and stay: their rows are found by the offsets.
void AdvanceRows(RowsArg* rows, std::int64_t first, core::DType dtype) {
  Advance(&rows->data, first * rows->strides.batch_elems, dtype);
}

void AdvanceScores(ScoreArg* scores, std::int64_t first, core::DType dtype) {
  Advance(&scores->data, first * scores->strides.batch_elems, dtype);
}

void AdvanceIndices(IndexArg* indices, std::int64_t first) {
  if (indices->data != nullptr) indices->data += first * indices->stride_elems;
}

}  // namespace

Status SequencesPerLaunch(const ForwardProblem& problem, const core::Plan& plan,
                          std::int64_t* num_sequences) {
  *num_sequences = std::max<std::int64_t>(problem.shape.batch, 1);
  const std::int64_t num_ctas = plan.num_tasks * plan.num_splits;
  if (num_ctas <= kMaxLaunchCtas) return {};
  *num_sequences = kMaxLaunchCtas / (num_ctas / problem.shape.batch);
  if (*num_sequences == 0) {
    return core::Unsupported(core::Format("%" PRId64 " query tiles in a batch of %" PRId64
                                          ": one sequence may have %" PRId64,
                                          num_ctas, problem.shape.batch, kMaxLaunchCtas));
  }
  if (problem.score.dropout.active()) {
    return core::Unsupported(
        core::Format("%" PRId64 " query tiles: with dropout a CUDA call takes at most %" PRId64,
                     num_ctas, kMaxLaunchCtas));
  }
  return {};
}

ForwardArgs SliceOfBatch(const ForwardProblem& problem, const ForwardArgs& whole,
                         std::int64_t first, std::int64_t count) {
  ForwardArgs args = whole;
  args.problem.batch = count;
  AdvanceRows(&args.q, first, problem.q.dtype);
  AdvanceRows(&args.o, first, problem.o.dtype);
  PagingArg& paging = args.problem.paging;
  if (paging.block_table != nullptr) {
    paging.block_table += first * paging.batch_stride_elems;  // the pools belong to all sequences
  } else {
    AdvanceRows(&args.k, first, problem.k.dtype);
    AdvanceRows(&args.v, first, problem.v.dtype);
  }
  if (args.lse.data != nullptr) args.lse.data += first * args.lse.batch_stride_elems;
  LengthsArg& lengths = args.problem.lengths;
  for (IndexArg* indices :
       {&lengths.cu_seqlens_q, &lengths.cu_seqlens_kv, &lengths.seqused_q, &lengths.seqused_kv}) {
    AdvanceIndices(indices, first);
  }
  ScoreRuleArg& score = args.problem.score;
  if (score.alibi_slopes.data != nullptr) {
    score.alibi_slopes.data += first * score.alibi_slopes.batch_stride_elems;
  }
  AdvanceScores(&score.bias, first, problem.score.bias.dtype);
  AdvanceScores(&score.mask, first, problem.score.mask.dtype);
  return args;
}

}  // namespace heed::cuda
