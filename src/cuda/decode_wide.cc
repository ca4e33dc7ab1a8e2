#include "cuda/decode_wide.h"

#include "cuda/kernels/decode/shape.h"

namespace heed::cuda {

bool IsWide(const core::KernelRow& row) {
  constexpr std::int64_t kWidestOfWarps = 256;
  return row.max_head_dim > kWidestOfWarps;
}

bool SharesValues(const core::DecodeProblem& problem) {
  const core::RowsView& k = problem.k.rows;
  const core::RowsView& v = problem.v.rows;
  const core::Shape& shape = problem.attention.shape;
  const bool is_same_place =
      k.data == v.data && (k.data != nullptr || shape.head_dim_v < shape.head_dim);
  return is_same_place && shape.head_dim_v <= shape.head_dim &&
         k.batch_stride_elems == v.batch_stride_elems && k.row_stride_elems == v.row_stride_elems &&
         k.head_stride_elems == v.head_stride_elems;
}

const char* WhyNotWide(const core::KernelRow& row, const core::DecodeProblem& problem) {
  if (problem.k.format != HEED_KV_PLAIN) return "takes no quantised cache";
  if (!DecodeDecodeVariant(row.cuda.variant).shares_values || SharesValues(problem)) return nullptr;
  return "takes a v_cache that is a view of the first columns of k_cache";
}

}  // namespace heed::cuda
