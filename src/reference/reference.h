// The oracle: attention in double precision, one plain loop nest per operation, written to be read.
// Reads every dtype (float64 too), follows docs/design.md "contract" to the letter, shares only
// bit-exact functions with the kernels (dropout, what an append writes to a cache): mask arithmetic
// is written again, independently.
#ifndef HEED_REFERENCE_REFERENCE_H_
#define HEED_REFERENCE_REFERENCE_H_

#include "core/decode_problem.h"
#include "core/problem.h"

namespace heed::reference {

core::Status Forward(const core::ForwardProblem& problem);
core::Status Backward(const core::BackwardProblem& problem);
core::Status Combine(const core::CombineProblem& problem);
core::Status Decode(const core::DecodeProblem& problem);
core::Status QuantizeKv(const core::QuantizeKvProblem& problem);
core::Status DropoutMask(const core::DropoutMaskProblem& problem);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_REFERENCE_H_
