// Which keys a query sees under causal and window rules, and the useful work that follows.
#ifndef HEED_TOOLS_TIMING_VISIBLE_KEYS_H_
#define HEED_TOOLS_TIMING_VISIBLE_KEYS_H_

#include <cstdint>

#include "tools/heed/options.h"

namespace heed::tools {

struct KeySpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // begin <= end
};

// As include/heed/heed.h defines causal, alignment and window.
KeySpan VisibleKeys(const ScoreOptions& score, std::int64_t query, std::int64_t q_len,
                    std::int64_t kv_len);

// Floating-point operations that the exact result needs: every visible (query, key) pair costs a
// dot product over D and a multiply-add over Dv. Hidden pairs count nothing.
double UsefulFlops(const ScoreOptions& score, const ResolvedShape& shape);
// The same of the backward pass: three products over D (scores again, dQ, dK), two over Dv (dP,
// dV).
double UsefulBackwardFlops(const ScoreOptions& score, const ResolvedShape& shape);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_VISIBLE_KEYS_H_
