// Raw-bit conversions between fp32 and the narrow floating-point formats: IEEE half (fp16),
// bfloat16, and fp8 e4m3fn. Narrowing rounds to nearest, ties to even. NaN stays NaN.
#ifndef HEED_DEVICE_FLOAT16_H_
#define HEED_DEVICE_FLOAT16_H_

#include "device/prelude.h"

namespace heed::device {

HEED_DEVICE u32 BitsOfFp32(float value) { return __builtin_bit_cast(u32, value); }
HEED_DEVICE float Fp32OfBits(u32 bits) { return __builtin_bit_cast(float, bits); }

// value / 2^shift rounded to nearest even, 1 <= shift; value < 2^31.
HEED_DEVICE u32 ShiftRightToNearestEven(u32 value, u32 shift) {
  if (shift > 31) return 0;
  const u32 half_minus_one = (1u << (shift - 1)) - 1;
  return (value + half_minus_one + ((value >> shift) & 1u)) >> shift;
}

// Magnitude bits of an fp32 below the target's smallest normal number, in units of the target's
// smallest subnormal 2^-unit_log2.
HEED_DEVICE u32 Fp32ToSubnormalUnits(u32 magnitude, u32 unit_log2) {
  const u32 exponent = magnitude >> 23;
  if (exponent == 0) return 0;  // below 2^-126: far below half a unit of every target
  const u32 significand = (magnitude & 0x7FFFFFu) | 0x800000u;
  return ShiftRightToNearestEven(significand, 150 - unit_log2 - exponent);
}

// fp16: 1 sign, 5 exponent (bias 15), 10 mantissa bits. A signalling NaN becomes quiet.
HEED_DEVICE float Fp16ToFp32(u16 half) {
  const u32 sign = (half & 0x8000u) << 16;
  const u32 exponent = (half >> 10) & 0x1Fu;
  const u32 mantissa = half & 0x3FFu;
  if (exponent == 0) {
    constexpr float kUnit = 1.0f / 16777216.0f;  // 2^-24
    return Fp32OfBits(sign | BitsOfFp32(static_cast<float>(mantissa) * kUnit));
  }
  if (exponent == 0x1F) {
    const u32 quiet = mantissa != 0 ? 0x400000u : 0u;
    return Fp32OfBits(sign | 0x7F800000u | quiet | (mantissa << 13));
  }
  return Fp32OfBits(sign | ((exponent + 127 - 15) << 23) | (mantissa << 13));
}

HEED_DEVICE u16 Fp32ToFp16(float value) {
  const u32 bits = BitsOfFp32(value);
  const u32 sign = (bits >> 16) & 0x8000u;
  const u32 magnitude = bits & 0x7FFFFFFFu;
  constexpr u32 kFirstNormal = 0x38800000u;    // 2^-14
  constexpr u32 kFirstOverflow = 0x477FF000u;  // 65520, half-way from 65504 to 2^16
  u32 half = 0;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
  } else if (magnitude >= kFirstOverflow) {
    half = 0x7C00u;
  } else if (magnitude >= kFirstNormal) {
    half = ShiftRightToNearestEven(magnitude - ((127u - 15u) << 23), 13);
  } else {
    half = Fp32ToSubnormalUnits(magnitude, 24);
  }
  return static_cast<u16>(sign | half);
}

// bf16: the upper half of an fp32.
HEED_DEVICE float Bf16ToFp32(u16 bfloat) { return Fp32OfBits(static_cast<u32>(bfloat) << 16); }

HEED_DEVICE u16 Fp32ToBf16(float value) {
  const u32 bits = BitsOfFp32(value);
  const u32 sign = bits & 0x80000000u;
  const u32 magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<u16>((bits >> 16) | 0x40u);
  return static_cast<u16>((sign >> 16) | ShiftRightToNearestEven(magnitude, 16));
}

// fp8 e4m3fn: 1 sign, 4 exponent (bias 7), 3 mantissa bits, no infinity, NaN = S.1111.111.
HEED_DEVICE float Fp8E4m3ToFp32(u8 byte) {
  const u32 sign = (byte & 0x80u) << 24;
  const u32 exponent = (byte >> 3) & 0xFu;
  const u32 mantissa = byte & 0x7u;
  if ((byte & 0x7Fu) == 0x7Fu) return Fp32OfBits(sign | 0x7FC00000u);
  if (exponent == 0) {
    constexpr float kUnit = 1.0f / 512.0f;  // 2^-9
    return Fp32OfBits(sign | BitsOfFp32(static_cast<float>(mantissa) * kUnit));
  }
  return Fp32OfBits(sign | ((exponent + 127 - 7) << 23) | (mantissa << 20));
}

// Saturates to +-448, infinities too; every NaN becomes 0x7F.
HEED_DEVICE u8 Fp32ToFp8E4m3(float value) {
  const u32 bits = BitsOfFp32(value);
  const u32 sign = (bits >> 24) & 0x80u;
  const u32 magnitude = bits & 0x7FFFFFFFu;
  constexpr u32 kFirstNormal = 0x3C800000u;  // 2^-6
  constexpr u32 kLargest = 0x43E00000u;      // 448
  if (magnitude > 0x7F800000u) return 0x7F;
  if (magnitude >= kLargest) return static_cast<u8>(sign | 0x7Eu);
  const u32 byte = magnitude >= kFirstNormal
                       ? ShiftRightToNearestEven(magnitude - ((127u - 7u) << 23), 20)
                       : Fp32ToSubnormalUnits(magnitude, 9);
  return static_cast<u8>(sign | byte);
}

}  // namespace heed::device

#endif  // HEED_DEVICE_FLOAT16_H_
