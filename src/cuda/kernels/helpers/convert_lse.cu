// Copies lse between the fp32 that kernels use and a caller's fp16. Traits::kVariant 0 writes the
// fp16, 1 reads it. Grid: CTA x takes kConvertLseRows rows of (batch, head) = x / ctas_per_head.
#include "heed_traits.h"
//
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/helpers/convert_lse_shape.h"

extern "C" __global__ void __launch_bounds__(heed::cuda::kConvertLseRows)
    heed_convert_lse(const __grid_constant__ heed::cuda::ConvertLseArgs args) {
  using namespace heed::cuda;
  const i64 ctas_per_head = ConvertLseCtasPerHead(args.num_rows);
  const i64 row = blockIdx.x % ctas_per_head * kConvertLseRows + threadIdx.x;
  if (row >= args.num_rows) return;
  const i64 batch_head = blockIdx.x / ctas_per_head;
  const i64 batch = batch_head / args.num_heads;
  const i64 head = batch_head % args.num_heads;
  float& wide =
      args.wide.data[batch * args.wide.batch_stride_elems + head * args.wide.head_stride_elems +
                     row * args.wide.row_stride_elems];
  u16& half = static_cast<u16*>(
      args.half.data)[heed::device::RowOffsetElems(args.half.strides, batch, row, head)];
  if constexpr (Traits::kVariant == 0) {
    half = F16::FromF32(wide);
  } else {
    wide = F16::ToF32(half);
  }
}
