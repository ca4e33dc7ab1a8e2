// heed_quantize_kv: rows of a source to payload and scales.
// Grid: kAppendWarps rows a CTA, one warp each: (batch, slot, head).
// Workload: reads the source once, three times from the L1 cache.
#include "heed_traits.h"
//
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/decode/keys.cuh"
#include "cuda/kernels/decode/quantize_row.cuh"

namespace heed::cuda {

extern "C" __global__ void __launch_bounds__(kAppendWarps * 32)
    heed_quantize_kv(const __grid_constant__ QuantizeKvArgs args) {
  using Element = ElementOf<Traits::kElement>::Type;
  const i64 row = i64{blockIdx.x} * kAppendWarps + threadIdx.x / 32;
  const i64 head = row % args.num_heads;
  const i64 slot = row / args.num_heads % args.num_slots;
  const i64 batch = row / args.num_heads / args.num_slots;
  if (batch >= args.batch) return;
  const auto* values = static_cast<const Element::Storage*>(args.source.data) +
                       device::RowOffsetElems(args.source.strides, batch, slot, head);
  StoreQuantizedRow<DecodeDecodeVariant(Traits::kVariant).format>(
      args.target, KeyPlace{static_cast<i32>(batch), static_cast<i32>(slot)}, head, args.head_dim,
      [&](i32 d) { return Element::ToF32(values[d]); });
}

}  // namespace heed::cuda
