// The forward description that forward and backward calls share.
#ifndef HEED_CORE_BUILD_FORWARD_PART_H_
#define HEED_CORE_BUILD_FORWARD_PART_H_

#include "core/build/operands.h"
#include "core/build/score.h"
#include "core/registry.h"

namespace heed::core {

// Where a forward description stands: whose exec counts, which operation runs, and whether o and
// lse are written.
struct ForwardUse {
  const heed_exec_args_t* exec;
  Op op;
  ResultRole role;
};

// The tensors read on the way; backward matches its gradients against them.
struct ForwardTensors {
  Operands operands;
  ScoreTensors score;
};

// Checks all but overlaps, which the caller asks the reader for once every tensor is read.
Status BuildForwardPart(const ForwardUse& use, const ForwardArgs& args, TensorReader* reader,
                        ForwardProblem* problem, ForwardTensors* tensors);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_FORWARD_PART_H_
