// Integer lanes of the int8 kernels in portable code.
#ifndef HEED_CPU_SIMD_INT8_GENERIC_H_
#define HEED_CPU_SIMD_INT8_GENERIC_H_

#include "cpu/simd/int8_vectors.h"

namespace heed::cpu {
namespace {

struct Int8Generic : Int8Vectors<GenericSimd<4, 12>> {
  struct Query {
    Ints bytes[kInt8Group];
  };
  struct Key {
    std::int32_t bytes[kInt8Group];
  };

  static constexpr int kTileVectors = 1;
  static constexpr int kTileRows = 4;
  static constexpr Int8QueryFormat kQueryFormat = Int8QueryFormat::kInts;
  static constexpr bool kHasPairs = false;
  // What weights stored as bytes lack.
  static constexpr int kWeightOffset = 0;
  // Vectors of rows whose exponentials advance together, of two keys each.
  static constexpr int kStepVectors = 1;
  static constexpr int kQueryVectors = kInt8Group;

  HEED_ALWAYS_INLINE static Query LoadQuery(const std::int32_t* p) {
    return {{LoadInts(p), LoadInts(p + kInt8TileRows), LoadInts(p + 2 * kInt8TileRows),
             LoadInts(p + 3 * kInt8TileRows)}};
  }
  HEED_ALWAYS_INLINE static Key BroadcastKey(const std::int8_t* p) {
    return {{p[0], p[1], p[2], p[3]}};
  }
  HEED_ALWAYS_INLINE static Ints Dot(const Query& q, const Key& k, Ints sum) {
    return sum + q.bytes[0] * k.bytes[0] + q.bytes[1] * k.bytes[1] + q.bytes[2] * k.bytes[2] +
           q.bytes[3] * k.bytes[3];
  }

  // Four rows of numbers from 0 to 255 as one step of queries.
  HEED_ALWAYS_INLINE static void StoreBytes(std::int32_t* p, const Ints (&x)[kInt8Group]) {
    for (int n = 0; n < kInt8Group; ++n) StoreInts(p + n * kInt8TileRows, x[n]);
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_INT8_GENERIC_H_
