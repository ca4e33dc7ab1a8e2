// Sums of fp32 numbers that do not depend on the order of the additions, nor on how many threads
// add at the same time: a fixed-point number of 192 bits in three words, the lowest first, with
// carries passed on one by one. A sum is exact but for what lies below its unit, 2^-88; an addend
// of 2^56 or more counts as an infinity. Both are so whatever the order.
#ifndef HEED_DEVICE_EXACT_SUM_H_
#define HEED_DEVICE_EXACT_SUM_H_

#include "device/float16.h"
#include "device/prelude.h"

namespace heed::device {

inline constexpr int kExactSumWords = 3;
inline constexpr int kExactSumUnitLog2 = -88;
inline constexpr int kExactSumLimitLog2 = 56;

// The upper word. Sums of fewer than 2^44 addends stay below 2^188 units: counted from 2^61 of this
// word they are positive and leave two bits to the infinities that were added; NaN counts as both.
inline constexpr u64 kExactSumZero = u64{1} << 61;
inline constexpr u64 kExactSumMinusInfinity = u64{1} << 62;
inline constexpr u64 kExactSumPlusInfinity = u64{1} << 63;

// words: what add(i, value) and set(i, bits) change, add returning what word i held before. Either
// must happen in one piece where several threads do it.
template <class Words>
HEED_DEVICE void AddExactly(Words& words, float value) {
  constexpr u32 kBias = 127, kMantissaBits = 23;
  const u32 bits = BitsOfFp32(value);
  const u32 exponent = (bits >> kMantissaBits) & 255u;
  const bool is_negative = (bits >> 31) != 0;
  if (exponent >= kBias + kExactSumLimitLog2) {
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    const u64 own = is_negative ? kExactSumMinusInfinity : kExactSumPlusInfinity;
    words.Set(kExactSumWords - 1, is_nan ? kExactSumMinusInfinity | kExactSumPlusInfinity : own);
    return;
  }
  u64 mantissa = (bits & 0x7FFFFFu) | (exponent != 0 ? 0x800000u : 0u);
  // Of the mantissa's lowest bit, in units.
  i32 place = static_cast<i32>(Max(exponent, 1u)) - static_cast<i32>(kBias + kMantissaBits) -
              kExactSumUnitLog2;
  if (place < 0) {
    mantissa = place > -24 ? mantissa >> -place : 0;
    place = 0;
  }
  const i32 shift = place % 64;
  u64 part = mantissa << shift;
  u64 next = shift > 40 ? mantissa >> (64 - shift) : 0;
  for (i32 word = place / 64; word < kExactSumWords && (part | next) != 0; ++word) {
    if (part != 0) {
      const u64 old = words.Add(word, is_negative ? 0 - part : part);
      const bool is_carried = is_negative ? old < part : old + part < old;
      next += is_carried ? 1 : 0;
    }
    part = next;
    next = 0;
  }
}

HEED_DEVICE float ExactSumToFp32(u64 low, u64 middle, u64 high) {
  const bool has_minus = (high & kExactSumMinusInfinity) != 0;
  const bool has_plus = (high & kExactSumPlusInfinity) != 0;
  if (has_minus || has_plus) {
    return Fp32OfBits(has_minus && has_plus ? 0x7FC00000u : has_minus ? 0xFF800000u : 0x7F800000u);
  }
  const bool is_negative = high < kExactSumZero;
  high -= kExactSumZero;
  if (is_negative) {  // two's complement
    low = ~low + 1;
    middle = ~middle + (low == 0 ? 1 : 0);
    high = ~high + (low == 0 && middle == 0 ? 1 : 0);
  }
  constexpr double kUnit = 1.0 / (static_cast<double>(u64{1} << 44) * (u64{1} << 44));
  constexpr double kWord = 4294967296.0 * 4294967296.0;
  static_assert(kExactSumUnitLog2 == -88);
  const double magnitude = static_cast<double>(low) * kUnit +
                           static_cast<double>(middle) * (kUnit * kWord) +
                           static_cast<double>(high) * (kUnit * kWord * kWord);
  return static_cast<float>(is_negative ? -magnitude : magnitude);
}

}  // namespace heed::device

#endif  // HEED_DEVICE_EXACT_SUM_H_
