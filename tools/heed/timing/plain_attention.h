// The baseline: attention in three passes over a stored score matrix, fp32. S = scale Q K^T for
// every head, then softmax of each row in place, then O = S V. Hidden scores are computed and set
// to -inf, as a framework without a fused kernel does. The matrix products are register-blocked
// over packed panels and vectorised.
#ifndef HEED_TOOLS_TIMING_PLAIN_ATTENTION_H_
#define HEED_TOOLS_TIMING_PLAIN_ATTENTION_H_

#include <cstddef>

#include "tools/heed/inputs.h"
#include "tools/heed/options.h"
#include "visible_keys.h"

namespace heed::tools {

// Compact row-major fp32: q [B,Sq,Hq,D], k [B,Skv,Hkv,D], v [B,Skv,Hkv,Dv], o [B,Sq,Hq,Dv],
// scores [B,Hq,Sq,Skv].
struct PlainProblem {
  ResolvedShape shape;
  const ScoreOptions* score = nullptr;
  float scale = 1.0f;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  float* o = nullptr;
  float* scores = nullptr;
};

// Bytes of the score matrix.
double PlainScoreBytes(const ResolvedShape& shape);

void RunPlainAttention(const PlainProblem& problem, int num_threads);
// "avx512", "avx2" or "portable".
const char* PlainTargetName();

// Query rows [begin, end) of head `head` of sequence `batch`.
struct PlainTask {
  std::int64_t batch, head, row_begin, row_end;
};
// One pass over one task.
struct PlainPasses {
  const char* target_name;
  void (*scores)(const PlainProblem& problem, const PlainTask& task);
  void (*softmax)(const PlainProblem& problem, const PlainTask& task);
  void (*values)(const PlainProblem& problem, const PlainTask& task);
};
extern const PlainPasses kPlainPortable;
#if defined(__x86_64__)
extern const PlainPasses kPlainAvx2;
extern const PlainPasses kPlainAvx512;
#endif

}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_PLAIN_ATTENTION_H_
