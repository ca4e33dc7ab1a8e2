// Int8 kernels on instructions that add the products of four signed bytes to each lane, as AArch64
// has them.
#ifndef HEED_CPU_SIMD_INT8_SIGNED_H_
#define HEED_CPU_SIMD_INT8_SIGNED_H_

#include "cpu/simd/int8_vectors.h"

namespace heed::cpu {
namespace {

template <class FloatsT>
struct Int8SignedBytes : Int8Vectors<FloatsT> {
  using Base = Int8Vectors<FloatsT>;
  using typename Base::Bits;
  using typename Base::Ints;
  using Query = Ints;
  using Key = Ints;

  // 32 registers: 8 x 3 sums, 3 operands and a broadcast.
  static constexpr int kTileVectors = 3;
  static constexpr int kTileRows = 8;
  static constexpr Int8QueryFormat kQueryFormat = Int8QueryFormat::kSigned;
  static constexpr int kQueryVectors = 1;
  // Bytes from 0 to 255 are stored as those from -128 to 127.
  static constexpr int kWeightOffset = 128;
  // Vectors of rows whose exponentials advance together, of two keys each.
  static constexpr int kStepVectors = 3;

  HEED_ALWAYS_INLINE static Query LoadQuery(const std::int32_t* p) { return Base::LoadInts(p); }
  HEED_ALWAYS_INLINE static Key BroadcastKey(const std::int8_t* p) {
    std::int32_t bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    return Base::SetInt(bits);
  }
  // Four rows of numbers from 0 to 255 as one step of queries.
  HEED_ALWAYS_INLINE static void StoreBytes(std::int32_t* p, const Ints (&x)[kInt8Group]) {
    const Ints bytes = (x[0] | x[1] << 8) | (x[2] << 16 | x[3] << 24);
    Base::StoreInts(p, bytes ^ __builtin_bit_cast(Ints, Bits{} + 0x80808080u));
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_INT8_SIGNED_H_
