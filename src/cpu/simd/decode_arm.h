// Integer lanes of the Arm decode kernels, on the compiler's own vector types.
#ifndef HEED_CPU_SIMD_DECODE_ARM_H_
#define HEED_CPU_SIMD_DECODE_ARM_H_

#include <cstdint>

#include "cpu/kernel/unroll-inl.h"

namespace heed::cpu {
namespace {

// Floats: a GenericSimd or what extends one.
template <class Floats>
struct DecodeArmInts : Floats {
  using typename Floats::Bits;
  using typename Floats::Vec;
  using Ints = typename Floats::Mask;

  HEED_ALWAYS_INLINE static Ints ZeroInts() { return Ints{}; }
  HEED_ALWAYS_INLINE static Ints LoadInts(const void* p) {
    Ints x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
  }
  HEED_ALWAYS_INLINE static void StoreInts(void* p, Ints x) { __builtin_memcpy(p, &x, sizeof(x)); }
  HEED_ALWAYS_INLINE static Ints BroadcastInt(const std::int32_t* p) { return Ints{} + *p; }
  HEED_ALWAYS_INLINE static Ints AddInts(Ints a, Ints b) { return AsInts(AsBits(a) + AsBits(b)); }
  HEED_ALWAYS_INLINE static Vec ToFloat(Ints x) { return __builtin_convertvector(x, Vec); }

  HEED_ALWAYS_INLINE static Ints TimesWordBase(Ints x) { return AsInts(AsBits(x) << 8); }
  // Of a word that is 256 * high + low in signed bytes.
  HEED_ALWAYS_INLINE static Ints HighByte(Ints word) { return (word + 128) >> 8; }

 private:
  HEED_ALWAYS_INLINE static Bits AsBits(Ints x) { return __builtin_bit_cast(Bits, x); }
  HEED_ALWAYS_INLINE static Ints AsInts(Bits x) { return __builtin_bit_cast(Ints, x); }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_DECODE_ARM_H_
