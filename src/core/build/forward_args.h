// The structs of one forward call, read and completed with neutral values.
#ifndef HEED_CORE_BUILD_FORWARD_ARGS_H_
#define HEED_CORE_BUILD_FORWARD_ARGS_H_

#include "core/problem.h"
#include "core/status.h"

namespace heed::core {

struct ForwardArgs {
  heed_forward_args_t call;
  heed_score_args_t score;
  heed_varlen_args_t varlen;
  heed_paging_args_t paging;
  heed_int8_args_t int8;

  bool is_paged() const { return call.paging != nullptr; }
  bool is_int8() const { return call.int8 != nullptr; }
  Packing q_packing() const {
    return varlen.cu_seqlens_q != nullptr ? Packing::kPacked : Packing::kDense;
  }
  Packing kv_packing() const {
    return varlen.cu_seqlens_kv != nullptr ? Packing::kPacked : Packing::kDense;
  }
};

// name = "args", or "forward" inside a backward call. Leaves args.exec unread.
Status ReadForwardArgs(const char* name, const heed_forward_args_t* source, ForwardArgs* args);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_FORWARD_ARGS_H_
