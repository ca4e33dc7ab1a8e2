// Products on a matrix unit: eight registers of 16 rows x 64 bytes, and one instruction that adds
// the product of 16 x 32 by 32 x 16 bf16 elements to 16 x 16 fp32 sums. A Unit (simd/amx.h) gives
//   Isa                             the vectors beside it, 16 lanes with pairs of bf16
//   Start(), Stop()                 around all other calls on a thread
//   Zero<r>(), Load<r>, Store<r>    a register; rows lie stride_bytes apart
//   MultiplyAdd<sum, left, right>   left: 32 elements a row; right: pairs of rows, as q_groups
// Units of bytes have the same shape: 64 elements a row, groups of four rows, 32-bit integer sums.
#ifndef HEED_CPU_KERNEL_MATRIX_MULTIPLY_INL_H_
#define HEED_CPU_KERNEL_MATRIX_MULTIPLY_INL_H_

#include <cstdint>

#include "cpu/kernel/multiply-inl.h"

namespace heed::cpu {

inline constexpr int kMatrixRegisters = 8;
inline constexpr int kMatrixRows = 16;
inline constexpr int kMatrixRowBytes = 64;
// Inner elements of one product: a group is one row of the left operand.
inline constexpr int kMatrixGroupElems = 32;

// Left matrices of a product with `vectors` right ones, each 16 query rows wide.
//
// On Golden Cove a product holds the unit for 16 cycles and its result is ready after 52, so 4
// independent sums keep it busy. A load of 16 cache lines takes 8 cycles of both load ports. With
// one left and one right register, the left operands taken back and forth, a step of
//   2 x 3 costs 3 + 4 loads for 6 products:  56 cycles of loads, 96 of the unit
//   2 x 2       2 + 3           4            40                  64
//   4 x 1       1 + 4           4            40                  64
template <int kVectors>
inline constexpr int kMatrixHeight = kVectors == 1 ? 4 : 2;

template <class Unit, int kCount>
HEED_ALWAYS_INLINE inline void ZeroSums() {
  Unroll<kCount>([](auto sum) HEED_ALWAYS_INLINE { Unit::template Zero<sum.value>(); });
}

// Left operand whose groups of one row lie step_stride_bytes apart.
struct MatrixRows {
  const std::uint8_t* base;
  std::int64_t row_stride_bytes;
  std::int64_t step_stride_bytes;

  HEED_ALWAYS_INLINE const std::uint8_t* At(int matrix, std::int64_t step) const {
    return base + matrix * kMatrixRows * row_stride_bytes + step * step_stride_bytes;
  }
};

// Register r * kVectors + v += left matrix r times right matrix v, over steps [begin, end). Shape
// of right: [steps][16 pairs][kTileLanes] pairs.
template <class Unit, int kRows, int kVectors>
HEED_ALWAYS_INLINE inline void AccumulateProducts(const MatrixRows& left, const void* right,
                                                  std::int64_t begin, std::int64_t end) {
  constexpr int kLeft = kRows * kVectors, kRight = kLeft + 1;
  static_assert(kRight < kMatrixRegisters);
  constexpr int kPairRowBytes = kTileLanes<typename Unit::Isa> * kGroupBytes;
  const auto* pairs = static_cast<const std::uint8_t*>(right) + begin * kMatrixRows * kPairRowBytes;
  for (std::int64_t step = begin; step < end; ++step) {
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      Unit::template Load<kRight>(pairs + v.value * kMatrixRowBytes, kPairRowBytes);
      Unroll<kRows>([&](auto i) HEED_ALWAYS_INLINE {
        // Back and forth: the last left matrix of one right matrix is the first of the next.
        constexpr int kRow = v.value % 2 == 0 ? i.value : kRows - 1 - i.value;
        if constexpr (i.value > 0 || v.value == 0) {
          Unit::template Load<kLeft>(left.At(kRow, step), left.row_stride_bytes);
        }
        Unit::template MultiplyAdd<kRow * kVectors + v.value, kLeft, kRight>();
      });
    });
    pairs += kMatrixRows * kPairRowBytes;
  }
}

// Sum registers from what StoreSums makes of them.
template <class Unit, int kRows, int kVectors>
HEED_ALWAYS_INLINE inline void LoadSums(const float* rows) {
  constexpr int kLanes = kTileLanes<typename Unit::Isa>;
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      const float* first = rows + r.value * kMatrixRows * kLanes + v.value * Unit::Isa::kLanes;
      Unit::template Load<r.value * kVectors + v.value>(first, kLanes * sizeof(float));
    });
  });
}

// Sum registers to rows of kTileLanes floats, or of as many integers.
template <class Unit, int kRows, int kVectors>
HEED_ALWAYS_INLINE inline void StoreSums(float* rows) {
  constexpr int kLanes = kTileLanes<typename Unit::Isa>;
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      float* first = rows + r.value * kMatrixRows * kLanes + v.value * Unit::Isa::kLanes;
      Unit::template Store<r.value * kVectors + v.value>(first, kLanes * sizeof(float));
    });
  });
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_MATRIX_MULTIPLY_INL_H_
