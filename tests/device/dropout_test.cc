#include "device/dropout.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace heed::device {
namespace {

constexpr u64 kSeed = 0x0123456789abcdefULL;
constexpr u64 kOffset = 42;

// Where an element lies: its patch, the word and the half (0 low, 1 high).
using Slot = std::tuple<u32, u32, int, int>;

Slot SlotOf(u32 i, u32 j) {
  const DropoutPatch patch = PatchOf(i, j);
  // Words that carry their own index in both halves tell which one NumberInPatch reads.
  const PhiloxWords labels{{0x00010000, 0x00030002, 0x00050004, 0x00070006}};
  const u32 label = NumberInPatch(labels, i, j);
  return {patch.row_patch, patch.column_patch, static_cast<int>(label / 2),
          static_cast<int>(label % 2)};
}

TEST(DropoutPatch, EveryElementHasItsOwnSlot) {
  constexpr u32 kRows = 64;
  constexpr u32 kColumns = 96;
  std::set<Slot> slots;
  for (u32 i = 0; i < kRows; ++i) {
    for (u32 j = 0; j < kColumns; ++j) EXPECT_TRUE(slots.insert(SlotOf(i, j)).second);
  }
  EXPECT_EQ(slots.size(), kRows * kColumns);
  // 8 elements a patch and dense numbering leave no patch out: (64 / 2) x (96 / 4) patches.
  EXPECT_EQ(*slots.rbegin(), Slot(31, 23, 3, 1));
}

TEST(DropoutPatch, LargestIndicesFit) {
  const u32 last = std::numeric_limits<u32>::max();
  const DropoutPatch patch = PatchOf(last, last);
  EXPECT_EQ(patch.row_patch, 0x7fffffffu);
  EXPECT_EQ(patch.column_patch, 0x3fffffffu);
}

// Accumulator of mma m16n8 (and of wgmma, per warp): lane L holds rows {L/4, L/4 + 8} and columns
// {2 (L%4), 2 (L%4) + 1}; register c counts row-major.
struct Coordinates {
  u32 row;
  u32 column;
};
Coordinates AccumulatorElement(u32 lane, u32 reg, u32 n8_tile) {
  return {lane / 4 + 8 * (reg / 2), 8 * n8_tile + 2 * (lane % 4) + reg % 2};
}

TEST(DropoutPatch, ALaneOfSOwnsExactlyOnePatchPerTwoTiles) {
  for (u32 lane = 0; lane < 32; ++lane) {
    std::set<std::pair<u32, u32>> patches;
    std::set<Slot> slots;
    for (u32 n8_tile = 0; n8_tile < 2; ++n8_tile) {
      for (u32 reg = 0; reg < 4; ++reg) {
        const Coordinates at = AccumulatorElement(lane, reg, n8_tile);
        const Slot slot = SlotOf(at.row, at.column);
        patches.insert({std::get<0>(slot), std::get<1>(slot)});
        slots.insert(slot);
        // Register pair (reg / 2) of tile n is word 2 * (reg / 2) + n, low half first.
        EXPECT_EQ(std::get<2>(slot), static_cast<int>(2 * (reg / 2) + n8_tile));
        EXPECT_EQ(std::get<3>(slot), static_cast<int>(reg % 2));
      }
    }
    EXPECT_EQ(patches.size(), 1u) << "lane " << lane;
    EXPECT_EQ(slots.size(), 8u) << "lane " << lane;
  }
}

// One 32-bit register made of the low (or high) halves of two words.
u32 PackHalves(u32 first, u32 second, bool high) {
  return high ? (first >> 16) | (second & 0xffff0000u) : (first & 0xffffu) | (second << 16);
}

// The backward pass holds S^T: rows are keys, columns queries. A lane makes one call, for query row
// 2 (L%4) + (L/4) % 2, keeps the half that its own keys' parity reads, and gets the same half of
// the neighbouring row from lane L ^ 4 in two 32-bit shuffles.
TEST(DropoutPatch, TwoShufflesServeTheTransposedFragments) {
  const DropoutStream stream = MakeDropoutStream(kSeed, kOffset);
  constexpr u32 kHead = 5;
  std::array<PhiloxWords, 32> own;
  for (u32 lane = 0; lane < 32; ++lane) {
    const u32 parity = lane / 4 % 2;
    own[lane] = DropoutWords(stream, kHead, PatchOf(2 * (lane % 4) + parity, lane / 4));
  }
  for (u32 lane = 0; lane < 32; ++lane) {
    const u32 parity = lane / 4 % 2;
    // packed[q][half row]: keys {L/4, L/4 + 8} of query 2 (L%4) + q, queries 8 further in [1].
    std::array<std::array<u32, 2>, 2> packed;
    for (u32 query = 0; query < 2; ++query) {
      const PhiloxWords& words = own[query == parity ? lane : lane ^ 4u];
      packed[query] = {PackHalves(words.word[0], words.word[1], parity == 1),
                       PackHalves(words.word[2], words.word[3], parity == 1)};
    }
    for (u32 n8_tile = 0; n8_tile < 2; ++n8_tile) {
      for (u32 reg = 0; reg < 4; ++reg) {
        const Coordinates at = AccumulatorElement(lane, reg, n8_tile);
        const u32 key = at.row;
        const u32 query = at.column;
        const u32 pair = packed[query % 2][n8_tile];
        const u32 number = key / 8 == 0 ? pair & 0xffffu : pair >> 16;
        EXPECT_EQ(number, DropoutNumber(kSeed, kOffset, kHead, query, key));
      }
    }
  }
}

TEST(DropoutNumber, AnswersOfTheSpecification) {
  // docs/dropout.md lists these, so that another implementation can check itself.
  EXPECT_EQ(DropoutNumber(0, 0, 0, 0, 0), 0xe8d5u);
  EXPECT_EQ(DropoutNumber(0, 0, 0, 0, 1), 0x6627u);
  EXPECT_EQ(DropoutNumber(0, 0, 0, 0, 8), 0xc58du);
  EXPECT_EQ(DropoutNumber(0, 0, 0, 8, 0), 0xac4cu);
  EXPECT_EQ(DropoutNumber(0, 0, 0, 8, 9), 0x9b00u);
  EXPECT_EQ(DropoutNumber(kSeed, kOffset, 3, 100, 1000), 0x5012u);
  EXPECT_EQ(DropoutNumber(kSeed, 0x500000007ULL, 70000, ~0u, ~0u), 0xbc7du);
}

TEST(DropoutNumber, EveryArgumentMatters) {
  const auto differing = [](u64 seed, u64 offset, u32 head) {
    int count = 0;
    for (u32 i = 0; i < 32; ++i) {
      for (u32 j = 0; j < 32; ++j) {
        count += DropoutNumber(seed, offset, head, i, j) != DropoutNumber(kSeed, kOffset, 3, i, j);
      }
    }
    return count;
  };
  constexpr int kMost = 1000;  // of 1024; a chance match has probability 1/65536
  EXPECT_EQ(differing(kSeed, kOffset, 3), 0);
  EXPECT_GT(differing(kSeed + 1, kOffset, 3), kMost);
  EXPECT_GT(differing(kSeed + (1ULL << 32), kOffset, 3), kMost);
  EXPECT_GT(differing(kSeed, kOffset + 1, 3), kMost);
  EXPECT_GT(differing(kSeed, kOffset + (1ULL << 32), 3), kMost);
  EXPECT_GT(differing(kSeed, kOffset, 4), kMost);
}

TEST(DropThreshold, RoundsToMultiplesOf2ToMinus16) {
  EXPECT_EQ(DropThreshold(0.0), 0u);
  EXPECT_EQ(DropThreshold(0.5), 32768u);
  EXPECT_EQ(DropThreshold(0.1), 6554u);
  EXPECT_EQ(DropThreshold(0.4 / 65536), 0u);
  EXPECT_EQ(DropThreshold(0.5 / 65536), 1u);
  EXPECT_EQ(DropThreshold(65535.0 / 65536), 65535u);
  EXPECT_EQ(DropThreshold(std::nextafter(1.0, 0.0)), 65535u);
}

TEST(KeepScale, IsTheInverseKeepRate) {
  EXPECT_EQ(KeepScale<float>(0), 1.0f);
  EXPECT_EQ(KeepScale<double>(32768), 2.0);
  EXPECT_EQ(KeepScale<double>(65535), 65536.0);
  EXPECT_DOUBLE_EQ(KeepScale<double>(DropThreshold(0.25)), 4.0 / 3.0);
}

// Share of kept elements among 2^18, in standard deviations from the expected share.
double KeepRateDeviations(double p, u64 seed) {
  constexpr u32 kSide = 512;
  const u32 threshold = DropThreshold(p);
  double kept = 0;
  for (u32 i = 0; i < kSide; ++i) {
    for (u32 j = 0; j < kSide; ++j) {
      kept += IsKept(DropoutNumber(seed, kOffset, 0, i, j), threshold) ? 1 : 0;
    }
  }
  const double rate = 1 - threshold / 65536.0;
  const double count = 1.0 * kSide * kSide;
  return (kept - count * rate) / std::sqrt(count * rate * (1 - rate));
}

TEST(DropoutNumber, KeepRateIsWithinFiveDeviations) {
  for (double p : {0.01, 0.1, 0.17, 0.5, 0.9}) {
    for (u64 seed = 0; seed < 3; ++seed) {
      EXPECT_LT(std::abs(KeepRateDeviations(p, seed)), 5.0) << "p " << p << " seed " << seed;
    }
  }
}

TEST(DropoutNumber, NeighboursAreUncorrelated) {
  constexpr u32 kSide = 512;
  const auto centred = [](u32 i, u32 j) {
    return DropoutNumber(kSeed, kOffset, 0, i, j) / 65535.0 - 0.5;
  };
  const std::pair<u32, u32> steps[] = {{0, 1}, {0, 2}, {0, 8}, {1, 0}, {8, 0}, {16, 16}};
  for (const auto& [row_step, column_step] : steps) {
    double sum = 0;
    for (u32 i = 0; i < kSide; ++i) {
      for (u32 j = 0; j < kSide; ++j) sum += centred(i, j) * centred(i + row_step, j + column_step);
    }
    // The product of two independent uniforms of variance 1/12 has deviation 1/12.
    const double deviations = sum / (kSide / 12.0);
    EXPECT_LT(std::abs(deviations), 5.0) << row_step << ", " << column_step;
  }
}

}  // namespace
}  // namespace heed::device
