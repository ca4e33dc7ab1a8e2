// How numbers become the payload of a quantised key-value cache: symmetric, value = scale *
// payload, rounded to nearest even. Bit-exact, so that every backend and the oracle write the same
// cache.
#ifndef HEED_DEVICE_KV_QUANT_H_
#define HEED_DEVICE_KV_QUANT_H_

#include "device/float16.h"
#include "device/prelude.h"

namespace heed::device {

inline constexpr i32 kInt8Limit = 127;
inline constexpr i32 kInt4Limit = 7;
inline constexpr float kFp8Limit = 448.0f;
// Blocks of q8_0 and q4_0.
inline constexpr i32 kBlockElems = 32;
inline constexpr i32 kBlockScaleBytes = 2;
inline constexpr i32 kQ8Bytes = kBlockScaleBytes + kBlockElems;
inline constexpr i32 kQ4Bytes = kBlockScaleBytes + kBlockElems / 2;
inline constexpr i32 kQ4Offset = 8;

HEED_DEVICE float Magnitude(float x) { return Fp32OfBits(BitsOfFp32(x) & 0x7FFFFFFFu); }

// Largest magnitude of a group; NaN when it holds a NaN or an infinity, which no payload can hold.
HEED_DEVICE float LargestMagnitude(float largest, float x) {
  const float magnitude = Magnitude(x);
  if (BitsOfFp32(magnitude) >= 0x7F800000u || largest != largest) return Fp32OfBits(0x7FC00000u);
  return Max(largest, magnitude);
}

// Nearest integer, ties to even; |x| <= 2^22.
HEED_DEVICE float NearestInteger(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return (x + kShift) - kShift;
}

// x / scale as an integer of [-limit, limit]; 0 for a scale that is 0 or NaN.
HEED_DEVICE i32 QuantizedInteger(float x, float scale, i32 limit) {
  if (!(scale > 0.0f) && !(scale < 0.0f)) return 0;
  const float bound = static_cast<float>(limit);
  return static_cast<i32>(NearestInteger(Clamp(x / scale, -bound, bound)));
}

HEED_DEVICE u8 QuantizedFp8(float x, float scale) {
  return scale > 0.0f ? Fp32ToFp8E4m3(x / scale) : u8{0};
}

// Scale of a block as fp16 bits, at most the largest finite number.
HEED_DEVICE u16 BlockScale(float scale) {
  const u16 bits = Fp32ToFp16(scale);
  const bool is_infinite = (bits & 0x7FFFu) == 0x7C00u;
  return is_infinite ? static_cast<u16>((bits & 0x8000u) | 0x7BFFu) : bits;
}

}  // namespace heed::device

#endif  // HEED_DEVICE_KV_QUANT_H_
