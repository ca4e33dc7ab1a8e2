// The key-value cache of a decode call: format, lengths, pages, rotary rows.
#ifndef HEED_CORE_BUILD_DECODE_CACHE_H_
#define HEED_CORE_BUILD_DECODE_CACHE_H_

#include "core/build/operands.h"
#include "core/decode_problem.h"

namespace heed::core {

// The argument structs of one decode call, completed with neutral values.
struct DecodeArgs {
  heed_decode_args_t call;
  heed_kv_quant_args_t quant;
  heed_score_args_t score;
  heed_paging_args_t paging;

  bool is_paged() const { return call.paging != nullptr; }
  bool appends() const { return call.k_new != nullptr; }
};

// Tensors that the cache is checked against.
struct CacheOperands {
  TensorInfo q, o;  // [batch, new_tokens, num_q_heads, head_dim or head_dim_v]
  TensorInfo k_cache, v_cache;
};

// What the cache tells about the keys of a call.
struct CacheFacts {
  BlockTableView block_table;
  std::int64_t longest_rows = 0;  // most keys of one sequence; 0 when lengths are on a device
};

// Reads k_cache and v_cache, and their scales where the format has them apart. Fills problem->k and
// problem->v.
Status ReadCache(const DecodeArgs& args, TensorReader* reader, CacheOperands* operands,
                 DecodeProblem* problem);

// Reads and checks lengths, batch index, left padding and block table, entry by entry on the host.
// Fills the index views of the problem. Requires: the operands are checked against each other.
Status CheckCacheLengths(const DecodeArgs& args, const CacheOperands& operands,
                         TensorReader* reader, CacheFacts* facts, DecodeProblem* problem);

// cos and sin: a pair of elements a column, a row for every position. Fills problem->rotary.
Status CheckRotary(const DecodeArgs& args, const CacheOperands& operands, const CacheFacts& facts,
                   TensorReader* reader, DecodeProblem* problem);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_DECODE_CACHE_H_
