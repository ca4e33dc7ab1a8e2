// The score rule of a call: scale, softcap, window, ALiBi, bias, mask, sinks, dropout.
#ifndef HEED_CORE_BUILD_SCORE_H_
#define HEED_CORE_BUILD_SCORE_H_

#include "core/build/lengths.h"
#include "core/build/tensor_reader.h"

namespace heed::core {

struct ScoreTensors {
  TensorInfo alibi_slopes, bias, mask, sinks;
};

// Fills problem->score. Requires: operands and lengths of the problem are built.
Status BuildScore(const heed_score_args_t& args, const LongestRows& longest, TensorReader* reader,
                  ForwardProblem* problem, ScoreTensors* tensors);

// p, seed and offset of dropout; shared with heed_dropout_mask.
Status BuildDropout(const char* p_name, double p, std::uint64_t seed, std::uint64_t offset,
                    DropoutRule* rule);

// The axes of a bias-like tensor of 1 to 4 axes, aligned at the last of [batch, num_q_heads, q_len,
// kv_len]; those of rank 4 when ndim is anything else.
const AxisNames& ScoreAxes(std::int32_t ndim);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_SCORE_H_
