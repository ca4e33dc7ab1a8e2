#include "device/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace heed::device {
namespace {

// A narrow format by its parameters; values and rounding are redone here in double arithmetic.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  u32 nan_free_end() const {  // first magnitude pattern that is NaN
    const u32 all_exponent = ((1u << exponent_bits) - 1) << mantissa_bits;
    return has_infinity ? all_exponent + 1 : all_exponent + (1u << mantissa_bits) - 1;
  }
  // Value of a magnitude pattern below nan_free_end(); the pattern of infinity gives the next power
  // of two, which is what rounding compares with.
  double MagnitudeValue(u32 pattern) const {
    const int exponent = static_cast<int>(pattern >> mantissa_bits);
    const double mantissa = pattern & ((1u << mantissa_bits) - 1);
    const double fraction = mantissa / (1 << mantissa_bits);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias())
                         : std::ldexp(1 + fraction, exponent - bias());
  }
};

constexpr Format kFp16{5, 10, true};
constexpr Format kBf16{8, 7, true};
constexpr Format kFp8{4, 3, false};

template <class Bits>
void ExpectDecodesExactly(const Format& format, float (*decode)(Bits)) {
  const u32 sign_bit = 1u << (format.exponent_bits + format.mantissa_bits);
  const u32 infinity = format.has_infinity ? format.nan_free_end() - 1 : sign_bit;
  for (u32 pattern = 0; pattern < sign_bit; ++pattern) {
    for (u32 sign : {0u, sign_bit}) {
      const float actual = decode(static_cast<Bits>(pattern | sign));
      EXPECT_EQ(std::signbit(actual), sign != 0) << pattern;
      if (pattern >= format.nan_free_end()) {
        EXPECT_TRUE(std::isnan(actual)) << pattern;
      } else if (pattern == infinity) {
        EXPECT_TRUE(std::isinf(actual)) << pattern;
      } else {
        EXPECT_EQ(std::abs(static_cast<double>(actual)), format.MagnitudeValue(pattern)) << pattern;
      }
    }
  }
}

TEST(Decode, AllFp16) { ExpectDecodesExactly<u16>(kFp16, Fp16ToFp32); }
TEST(Decode, AllBf16) { ExpectDecodesExactly<u16>(kBf16, Bf16ToFp32); }
TEST(Decode, AllFp8) { ExpectDecodesExactly<u8>(kFp8, Fp8E4m3ToFp32); }

// Nearest pattern to `value` >= 0, ties to the even pattern, by bisection over the values.
u32 NearestPattern(const Format& format, double value) {
  u32 low = 0;
  u32 high = format.nan_free_end() - 1;
  if (value >= format.MagnitudeValue(high)) return high;
  while (high - low > 1) {
    const u32 middle = (low + high) / 2;
    (format.MagnitudeValue(middle) <= value ? low : high) = middle;
  }
  const double below = value - format.MagnitudeValue(low);
  const double above = format.MagnitudeValue(high) - value;
  if (below == above) return low % 2 == 0 ? low : high;
  return below < above ? low : high;
}

// Floats around every representable value and every half-way point, plus a walk over all exponents.
std::vector<float> CriticalFloats(const Format& format) {
  std::vector<float> values = {0.0f, std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::max()};
  for (u32 pattern = 0; pattern + 1 < format.nan_free_end(); ++pattern) {
    const double low = format.MagnitudeValue(pattern);
    const double half_way = (low + format.MagnitudeValue(pattern + 1)) / 2;
    for (double centre : {low, half_way}) {
      const float at = static_cast<float>(centre);
      values.insert(values.end(), {at, std::nextafter(at, 0.0f), std::nextafter(at, INFINITY)});
    }
  }
  for (u32 bits = 0; bits < 0x7f800000u; bits += 99991u) values.push_back(Fp32OfBits(bits));
  return values;
}

template <class Bits>
void ExpectEncodesToNearestEven(const Format& format, Bits (*encode)(float)) {
  const u32 sign_bit = 1u << (format.exponent_bits + format.mantissa_bits);
  for (float value : CriticalFloats(format)) {
    if (std::isinf(value)) continue;
    const u32 expected = NearestPattern(format, value);
    ASSERT_EQ(encode(value), expected) << value;
    ASSERT_EQ(encode(-value), expected | sign_bit) << -value;
  }
}

TEST(Encode, Fp16RoundsToNearestEven) { ExpectEncodesToNearestEven<u16>(kFp16, Fp32ToFp16); }
TEST(Encode, Bf16RoundsToNearestEven) { ExpectEncodesToNearestEven<u16>(kBf16, Fp32ToBf16); }
TEST(Encode, Fp8RoundsToNearestEvenAndSaturates) {
  ExpectEncodesToNearestEven<u8>(kFp8, Fp32ToFp8E4m3);
}

TEST(Encode, InfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Fp32ToFp16(infinity), 0x7c00);
  EXPECT_EQ(Fp32ToFp16(-infinity), 0xfc00);
  EXPECT_EQ(Fp32ToBf16(infinity), 0x7f80);
  EXPECT_EQ(Fp32ToBf16(-infinity), 0xff80);
  EXPECT_EQ(Fp32ToFp8E4m3(infinity), 0x7e);
  EXPECT_EQ(Fp32ToFp8E4m3(-infinity), 0xfe);
  // Every NaN, with the smallest and the largest payload too.
  for (u32 bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(Fp16ToFp32(Fp32ToFp16(Fp32OfBits(bits))))) << bits;
    EXPECT_TRUE(std::isnan(Bf16ToFp32(Fp32ToBf16(Fp32OfBits(bits))))) << bits;
    EXPECT_EQ(Fp32ToFp8E4m3(Fp32OfBits(bits)), 0x7f) << bits;
  }
}

template <class Bits>
void ExpectRoundTrips(const Format& format, float (*decode)(Bits), Bits (*encode)(float)) {
  for (u32 pattern = 0; pattern < format.nan_free_end(); ++pattern) {
    EXPECT_EQ(encode(decode(static_cast<Bits>(pattern))), pattern);
  }
}

TEST(RoundTrip, EveryNumberComesBack) {
  ExpectRoundTrips<u16>(kFp16, Fp16ToFp32, Fp32ToFp16);
  ExpectRoundTrips<u16>(kBf16, Bf16ToFp32, Fp32ToBf16);
  ExpectRoundTrips<u8>(kFp8, Fp8E4m3ToFp32, Fp32ToFp8E4m3);
}

static_assert(Fp16ToFp32(0x3c00) == 1.0f && Fp32ToFp16(65519.0f) == 0x7bff);
static_assert(Bf16ToFp32(0x3f80) == 1.0f && Fp32ToFp8E4m3(448.0f) == 0x7e);

}  // namespace
}  // namespace heed::device
