// Assembles the kernels of one target into the table the driver uses.
#ifndef HEED_CPU_KERNEL_KERNEL_TABLE_INL_H_
#define HEED_CPU_KERNEL_KERNEL_TABLE_INL_H_

#include "cpu/kernel/pack-inl.h"
#include "cpu/kernel/scores-inl.h"
#include "cpu/kernel/values-inl.h"

namespace heed::cpu {

// fp32 arithmetic for tensors of Element; narrower keys and values are widened block by block.
template <class Isa, class Element>
constexpr ForwardKernel Fp32Kernel() {
  static_assert(kTileLanes<Isa> <= kMaxTileRows && Isa::kTileVectors == kMaxTileVectors);
  using Dot = Fp32Dot<Isa>;
  constexpr bool kIsFp32 = sizeof(Element) == kGroupBytes;
  return {
      .tile_rows = kTileLanes<Isa>,
      .lanes = Isa::kLanes,
      .group_elems = Dot::kGroupElems,
      .group_bytes = kGroupBytes,
      .column_multiple = 1,
      .reads_keys_in_place = kIsFp32,
      .reads_values_in_place = kIsFp32,
      .pack_queries = PackQueries<Dot, Element>,
      .pack_keys = PackRowsAsFp32<Isa, Element>,
      .pack_values = PackRowsAsFp32<Isa, Element>,
      .compute_scores = {ComputeScores<Dot, 1>, ComputeScores<Dot, 2>, ComputeScores<Dot, 3>},
      .accumulate_values = {AccumulateValues<Dot, 1>, AccumulateValues<Dot, 2>,
                            AccumulateValues<Dot, 3>},
      .store_rows = StoreRows<Isa, Element>,
      .start_thread = nullptr,
      .stop_thread = nullptr,
  };
}

// Both products by bf16 dot products of pairs.
template <class Isa>
constexpr ForwardKernel Bf16PairKernel() {
  static_assert(kTileLanes<Isa> <= kMaxTileRows && Isa::kTileVectors == kMaxTileVectors);
  using Dot = Bf16PairDot<Isa>;
  return {
      .tile_rows = kTileLanes<Isa>,
      .lanes = Isa::kLanes,
      .group_elems = Dot::kGroupElems,
      .group_bytes = kGroupBytes,
      .column_multiple = 1,
      .reads_keys_in_place = true,
      .reads_values_in_place = false,
      .pack_queries = PackQueries<Dot, Bfloat>,
      .pack_keys = PackKeyPairs<Isa>,
      .pack_values = PackValuePairs<Isa>,
      .compute_scores = {ComputeScores<Dot, 1>, ComputeScores<Dot, 2>, ComputeScores<Dot, 3>},
      .accumulate_values = {AccumulateValues<Dot, 1>, AccumulateValues<Dot, 2>,
                            AccumulateValues<Dot, 3>},
      .store_rows = StoreRows<Isa, Bfloat>,
      .start_thread = nullptr,
      .stop_thread = nullptr,
  };
}

template <class Isa>
constexpr ForwardKernelSet Fp32KernelSet() {
  return {Fp32Kernel<Isa, float>(), Fp32Kernel<Isa, Half>(), Fp32Kernel<Isa, Bfloat>()};
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_KERNEL_TABLE_INL_H_
