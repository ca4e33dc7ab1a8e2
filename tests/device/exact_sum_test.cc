#include "device/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace heed::device {
namespace {

constexpr float kInfinityFp32 = std::numeric_limits<float>::infinity();

// One thread's sum.
struct Words {
  std::array<u64, kExactSumWords> words{0, 0, kExactSumZero};
  u64 Add(int word, u64 value) {
    u64& target = words[static_cast<std::size_t>(word)];
    const u64 old = target;
    target += value;
    return old;
  }
  void Set(int word, u64 bits) { words[static_cast<std::size_t>(word)] |= bits; }
  float Value() const { return ExactSumToFp32(words[0], words[1], words[2]); }
};

Words SumOf(const std::vector<float>& addends) {
  Words sum;
  for (const float addend : addends) AddExactly(sum, addend);
  return sum;
}

TEST(ExactSum, OneNumberStaysWhatItIs) {
  for (const float value : {0.0f, 1.0f, -1.0f, 0.1f, -3.25e-9f, 1.5e15f, -7e16f, 0x1p-64f}) {
    EXPECT_EQ(SumOf({value}).Value(), value);
  }
}

TEST(ExactSum, NumbersOfAllMagnitudesAddUpAsIntegersDo) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    // Multiples of 2^-40 below 2^50, whose sum a 128-bit integer holds.
    std::vector<float> addends;
    __int128 expected = 0;
    for (int n = 0; n < 500; ++n) {
      const auto mantissa = static_cast<std::int64_t>(random() % (1 << 24)) - (1 << 23);
      const int exponent = static_cast<int>(random() % 66) - 40;
      addends.push_back(std::ldexp(static_cast<float>(mantissa), exponent));
      expected += static_cast<__int128>(mantissa) << (exponent + 40);
    }
    const auto wanted = static_cast<float>(std::ldexp(static_cast<double>(expected), -40));
    EXPECT_FLOAT_EQ(SumOf(addends).Value(), wanted);
    const Words forward = SumOf(addends);
    std::shuffle(addends.begin(), addends.end(), random);
    EXPECT_EQ(SumOf(addends).words, forward.words);
  }
}

TEST(ExactSum, WhatCancelsLeavesTheSmallRest) {
  EXPECT_EQ(SumOf({1e15f, 3e-10f, -1e15f}).Value(), 3e-10f);
  EXPECT_EQ(SumOf({-1e15f, -3e-10f, 1e15f}).Value(), -3e-10f);
  EXPECT_EQ(SumOf({0x1p-24f, -0x1p40f, 0x1p40f, -0x1p-24f}).words, Words().words);
}

TEST(ExactSum, CarriesCrossEveryWord) {
  Words sum;
  for (int n = 0; n < 1000; ++n) {
    AddExactly(sum, 0x1.fffffep55f);
    AddExactly(sum, 0x1.fffffep-60f);
  }
  for (int n = 0; n < 1000; ++n) AddExactly(sum, -0x1.fffffep55f);
  EXPECT_EQ(sum.Value(), 1000.0f * 0x1.fffffep-60f);
  for (int n = 0; n < 2000; ++n) AddExactly(sum, -0x1.fffffep-60f);
  EXPECT_EQ(sum.Value(), -1000.0f * 0x1.fffffep-60f);
}

TEST(ExactSum, BelowTheUnitNothingIsLeft) {
  EXPECT_EQ(SumOf({0x1p-88f}).Value(), 0x1p-88f);
  EXPECT_EQ(SumOf({0x1.8p-88f}).Value(), 0x1p-88f);
  EXPECT_EQ(SumOf({0x1p-89f, -0x1p-126f, 0x1p-149f}).Value(), 0.0f);
}

TEST(ExactSum, InfinitiesAndNanCountWhateverElseIsAdded) {
  EXPECT_EQ(SumOf({1.0f, kInfinityFp32, -5.0f}).Value(), kInfinityFp32);
  EXPECT_EQ(SumOf({-kInfinityFp32, 1.0f, -kInfinityFp32}).Value(), -kInfinityFp32);
  EXPECT_EQ(SumOf({0x1p56f, 1.0f}).Value(), kInfinityFp32);
  EXPECT_TRUE(std::isnan(SumOf({kInfinityFp32, -kInfinityFp32}).Value()));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(SumOf({1.0f, nan, 2.0f}).Value()));
}

}  // namespace
}  // namespace heed::device
