#include "core/build/forward_args.h"

#include "core/abi_struct.h"

namespace heed::core {
namespace {

// k and v are paged, packed or dense; only one can be described.
Status CheckPagingFits(const ForwardArgs& args) {
  if (!args.is_paged()) return {};
  HEED_RETURN_IF_ERROR(RequirePointer("paging.block_table", args.paging.block_table));
  if (args.varlen.cu_seqlens_kv != nullptr) {
    return InvalidArgument(
        "varlen.cu_seqlens_kv: must be NULL with paging, where a sequence's keys are named by "
        "paging.block_table and counted by varlen.seqused_kv");
  }
  if (args.varlen.seqused_kv == nullptr) {
    return InvalidArgument(
        "varlen.seqused_kv = NULL: is required with paging, where it gives the lengths");
  }
  return {};
}

}  // namespace

Status ReadForwardArgs(const char* name, const heed_forward_args_t* source, ForwardArgs* args) {
  HEED_RETURN_IF_ERROR(ReadRequiredStruct(name, source, &args->call));
  HEED_RETURN_IF_ERROR(ReadStruct("score", args->call.score, &args->score));
  HEED_RETURN_IF_ERROR(ReadStruct("varlen", args->call.varlen, &args->varlen));
  HEED_RETURN_IF_ERROR(ReadStruct("paging", args->call.paging, &args->paging));
  HEED_RETURN_IF_ERROR(ReadStruct("int8", args->call.int8, &args->int8));
  return CheckPagingFits(*args);
}

}  // namespace heed::core
