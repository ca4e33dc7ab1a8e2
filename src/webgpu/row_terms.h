// What the backward pass knows of a query row from the forward pass.
#ifndef HEED_WEBGPU_ROW_TERMS_H_
#define HEED_WEBGPU_ROW_TERMS_H_

#include <cstdint>

#include "core/problem.h"

namespace heed::webgpu {

struct RowTerms {
  bool sees_a_key = false;  // of all keys of its sequence
  double lse = 0.0;
  double d_lse = 0.0;
  double o_dot_d_o = 0.0;  // 0 without a key: o is 0, and d_o may hold anything
};

// Row `query` of sequence `batch`, q head `head`.
RowTerms ComputeRowTerms(const core::BackwardProblem& problem, const core::Sequence& sequence,
                         std::int64_t batch, std::int64_t query, std::int64_t head);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_ROW_TERMS_H_
