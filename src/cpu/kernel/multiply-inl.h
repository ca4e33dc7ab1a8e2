// The register-tile product under both matrix products of attention.
#ifndef HEED_CPU_KERNEL_MULTIPLY_INL_H_
#define HEED_CPU_KERNEL_MULTIPLY_INL_H_

#include <cstdint>

#include "cpu/forward_kernel.h"
#include "cpu/kernel/unroll-inl.h"

namespace heed::cpu {

// What one broadcast feeds to a dot product.
inline constexpr int kGroupBytes = 4;

// How groups multiply: one fp32 product per lane.
template <class IsaT>
struct Fp32Dot {
  using Isa = IsaT;
  using Vec = typename Isa::Vec;
  using GroupVec = Vec;
  static constexpr int kGroupElems = 1;

  HEED_ALWAYS_INLINE static GroupVec Broadcast(const void* group) {
    return Isa::Broadcast(static_cast<const float*>(group));
  }
  HEED_ALWAYS_INLINE static GroupVec LoadGroups(const void* groups) {
    return Isa::Load(static_cast<const float*>(groups));
  }
  HEED_ALWAYS_INLINE static Vec MultiplyAdd(GroupVec a, GroupVec b, Vec sum) {
    return Isa::Fma(a, b, sum);
  }
};

// Two bf16 products per lane, summed in fp32.
template <class IsaT>
struct Bf16PairDot {
  using Isa = IsaT;
  using Vec = typename Isa::Vec;
  using GroupVec = typename Isa::Pairs;
  static constexpr int kGroupElems = 2;

  HEED_ALWAYS_INLINE static GroupVec Broadcast(const void* group) {
    return Isa::BroadcastPair(group);
  }
  HEED_ALWAYS_INLINE static GroupVec LoadGroups(const void* groups) {
    return Isa::LoadPairs(groups);
  }
  HEED_ALWAYS_INLINE static Vec MultiplyAdd(GroupVec a, GroupVec b, Vec sum) {
    return Isa::DotPairs(a, b, sum);
  }
};

// Left operand read down rows that lie stride_bytes apart: keys, whose groups are contiguous.
struct ContiguousSteps {
  const std::uint8_t* base;
  std::int64_t stride_bytes;

  HEED_ALWAYS_INLINE const void* At(int row, std::int64_t step) const {
    return base + row * stride_bytes + step * kGroupBytes;
  }
};

// Left operand whose rows are adjacent and whose steps lie stride_bytes apart: columns of values.
struct ContiguousRows {
  const std::uint8_t* base;
  std::int64_t stride_bytes;

  HEED_ALWAYS_INLINE const void* At(int row, std::int64_t step) const {
    return base + step * stride_bytes + row * kGroupBytes;
  }
};

// kRows x kVectors accumulators of one product; with the kVectors operands and one broadcast they
// fill the register file.
template <class Isa, int kRows, int kVectors>
struct RegisterTile {
  typename Isa::Vec at[kRows][kVectors];
};

template <class Isa>
inline constexpr int kTileLanes = Isa::kLanes* Isa::kTileVectors;

// Rows of a register tile that is `vectors` wide. Above 8 rows the row addresses no longer fit the
// general registers, and 8 accumulators already cover the latency of a fused multiply-add.
template <class Isa, int kVectors>
inline constexpr int kTileHeight =
    Isa::kAccumulators / kVectors < 8 ? Isa::kAccumulators / kVectors : 8;

template <class Dot, int kRows, int kVectors, class Left>
HEED_ALWAYS_INLINE inline void MultiplyStep(
    const Left& left, std::int64_t step, const std::uint8_t* right,
    RegisterTile<typename Dot::Isa, kRows, kVectors>* tile) {
  using Isa = typename Dot::Isa;
  typename Dot::GroupVec b[kVectors];
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
    b[v.value] = Dot::LoadGroups(right + v.value * Isa::kLanes * kGroupBytes);
  });
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    const auto a = Dot::Broadcast(left.At(r.value, step));
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      auto& sum = tile->at[r.value][v.value];
      sum = Dot::MultiplyAdd(a, b[v.value], sum);
    });
  });
}

// Steps between two looks at the loop condition. Two raise the product with values from 0.79 to
// 0.89 of peak on a Xeon (Sapphire Rapids). With 16 registers g++ 12 spills accumulators for two
// steps, with 32 for four.
template <class Isa>
inline constexpr int kStepsPerRound = Isa::kAccumulators > 16 ? 2 : 1;

// tile[r][v] = sum over steps of left(r, step) * right[step][v]. Shape of right:
// [num_steps][kTileLanes] groups.
template <class Dot, int kRows, int kVectors, class Left>
HEED_ALWAYS_INLINE inline RegisterTile<typename Dot::Isa, kRows, kVectors> Multiply(
    const Left& left, const void* right, std::int64_t num_steps) {
  using Isa = typename Dot::Isa;
  RegisterTile<Isa, kRows, kVectors> tile;
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    Unroll<kVectors>([&](auto v)
                         HEED_ALWAYS_INLINE { tile.at[r.value][v.value] = Isa::Set(0.0f); });
  });
  const auto* groups = static_cast<const std::uint8_t*>(right);
  constexpr std::int64_t kStepBytes = kTileLanes<Isa> * kGroupBytes;
  std::int64_t step = 0;
  for (; step + kStepsPerRound<Isa> <= num_steps; step += kStepsPerRound<Isa>) {
    Unroll<kStepsPerRound<Isa>>([&](auto i) HEED_ALWAYS_INLINE {
      MultiplyStep<Dot>(left, step + i.value, groups + i.value * kStepBytes, &tile);
    });
    groups += kStepsPerRound<Isa> * kStepBytes;
  }
  static_assert(kStepsPerRound<Isa> <= 2, "at most one step may be left");
  if (step < num_steps) MultiplyStep<Dot>(left, step, groups, &tile);
  return tile;
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_MULTIPLY_INL_H_
