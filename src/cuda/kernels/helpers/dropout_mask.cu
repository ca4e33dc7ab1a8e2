// Writes the dropout mask as bytes, one thread per element. See device/dropout.h.
// Grid: CTA x takes kDropoutMaskKeys keys of row x / ctas_per_row, rows being (batch, head, query).
#include "heed_traits.h"
//
#include "cuda/kernels/common/args.h"
#include "cuda/kernels/helpers/dropout_mask_shape.h"
#include "device/dropout.h"

extern "C" __global__ void __launch_bounds__(heed::cuda::kDropoutMaskKeys)
    heed_dropout_mask(const __grid_constant__ heed::cuda::DropoutMaskArgs args) {
  using namespace heed::cuda;
  const i64 ctas_per_row = DropoutMaskCtasPerRow(args.kv_len);
  const i64 key = blockIdx.x % ctas_per_row * kDropoutMaskKeys + threadIdx.x;
  const i64 row = blockIdx.x / ctas_per_row;
  if (key >= args.kv_len) return;
  const i64 query = row % args.q_len;
  const i64 head_index = row / args.q_len;
  const i64 batch = head_index / args.num_q_heads;
  const i64 head = head_index % args.num_q_heads;
  const u32 number = heed::device::DropoutNumber(args.dropout.seed, args.dropout.offset,
                                                 static_cast<u32>(head_index),
                                                 static_cast<u32>(query), static_cast<u32>(key));
  const bool is_kept = heed::device::IsKept(number, args.dropout.drop_threshold);
  static_cast<unsigned char*>(
      args.mask.data)[heed::device::ScoreOffsetElems(args.mask.strides, batch, head, query, key)] =
      is_kept ? 1 : 0;
}
