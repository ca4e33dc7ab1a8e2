// Attention over int8 queries, keys and values.
#ifndef HEED_CPU_INT8_FORWARD_H_
#define HEED_CPU_INT8_FORWARD_H_

#include <cstdint>

#include "core/plan.h"
#include "cpu/int8_kernel.h"
#include "cpu/int8_pack.h"

namespace heed::cpu {

// Keys and values of the only KV head, packed by the caller as int8_pack.h says; null: the call
// packs.
struct Int8Packed {
  const std::int8_t* keys = nullptr;
  const std::int8_t* values = nullptr;
};

std::size_t Int8WorkspaceBytes(const core::ForwardProblem& problem, std::int64_t num_workers);

// With the fixed softmax the same bits for every kernel, else for every num_workers. Requires:
// Int8Objection finds nothing. Errors: HEED_INVALID_ARGUMENT for a negative scale or one that is
// not finite; nothing is written then.
core::Status RunInt8(const Int8Kernel& kernel, const core::ForwardProblem& problem,
                     const Int8Packed& packed, std::int64_t num_workers, void* workspace);

// The planned row, by the arithmetic of P V that is fastest here and that the call allows.
core::Status RunInt8Forward(const core::ForwardProblem& problem, const core::Plan& plan,
                            void* workspace);

// One head of contiguous rows [length][head_dim] with the fixed softmax and scale 1 /
// sqrt(head_dim): the problem of flash_attention_fused_v2.h.
struct Int8HeadCall {
  const std::int8_t* q;
  const std::int8_t* k;  // may be null when the keys come packed; v likewise
  const std::int8_t* v;
  float* o;
  float* lse;  // may be null
  std::int64_t length;
  std::int64_t head_dim;
};
core::ForwardProblem MakeInt8Problem(const Int8HeadCall& call);

}  // namespace heed::cpu

#endif  // HEED_CPU_INT8_FORWARD_H_
