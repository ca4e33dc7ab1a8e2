#include "device/mask.h"

#include <gtest/gtest.h>

#include <limits>

namespace heed::device {
namespace {

constexpr i64 kMax = std::numeric_limits<i64>::max();

// The rule of heed.h in 128-bit arithmetic: j is visible to query i.
bool IsVisible(const WindowRule& rule, i64 i, i64 j, i64 q_len, i64 kv_len) {
  using Wide = __int128;
  const Wide shift = rule.alignment == Alignment::kBottomRight ? Wide{kv_len} - q_len : 0;
  const Wide position = i + shift;
  if (j < 0 || j >= kv_len) return false;
  if (rule.left >= 0 && j < position - rule.left) return false;
  if (rule.right >= 0 && j > position + rule.right) return false;
  return true;
}

constexpr Alignment kAlignments[] = {Alignment::kBottomRight, Alignment::kTopLeft};

TEST(VisibleKeys, AgreesWithTheRuleOnEverySmallCase) {
  const i64 bounds[] = {kUnlimited, 0, 1, 2, 3, 7, 100, kMax - 1, kMax};
  for (Alignment alignment : kAlignments) {
    for (i64 left : bounds) {
      for (i64 right : bounds) {
        const WindowRule rule{left, right, alignment};
        for (i64 q_len = 0; q_len <= 7; ++q_len) {
          for (i64 kv_len = 0; kv_len <= 7; ++kv_len) {
            for (i64 i = 0; i < q_len; ++i) {
              const KeyRange keys = VisibleKeys(rule, i, q_len, kv_len);
              EXPECT_LE(0, keys.begin);
              EXPECT_LE(keys.begin, keys.end);
              EXPECT_LE(keys.end, kv_len);
              for (i64 j = 0; j < kv_len; ++j) {
                ASSERT_EQ(keys.begin <= j && j < keys.end, IsVisible(rule, i, j, q_len, kv_len))
                    << "left " << left << " right " << right << " q_len " << q_len << " kv_len "
                    << kv_len << " i " << i << " j " << j;
              }
            }
          }
        }
      }
    }
  }
}

TEST(VisibleDiagonals, AgreeWithVisibleKeysOnEverySmallCase) {
  const i64 bounds[] = {kUnlimited, 0, 1, 2, 3, 7, 100, kMax - 1, kMax};
  for (Alignment alignment : kAlignments) {
    for (i64 left : bounds) {
      for (i64 right : bounds) {
        const WindowRule rule{left, right, alignment};
        for (i64 q_len = 0; q_len <= 7; ++q_len) {
          for (i64 kv_len = 0; kv_len <= 7; ++kv_len) {
            const Diagonals diagonals = VisibleDiagonals(rule, q_len, kv_len);
            EXPECT_LE(-q_len, diagonals.low);
            EXPECT_LE(diagonals.high, kv_len);
            for (i64 i = 0; i < q_len; ++i) {
              const KeyRange keys = VisibleKeys(rule, i, q_len, kv_len);
              for (i64 j = 0; j < kv_len; ++j) {
                ASSERT_EQ(keys.begin <= j && j < keys.end,
                          diagonals.low <= j - i && j - i <= diagonals.high)
                    << "left " << left << " right " << right << " q_len " << q_len << " kv_len "
                    << kv_len << " i " << i << " j " << j;
              }
            }
          }
        }
      }
    }
  }
}

// The ends of the range are right at and around the limits of 32-bit arithmetic.
TEST(VisibleKeys, AgreesWithTheRuleAtLargeLengths) {
  const i64 lengths[] = {1, 1000, (1LL << 31) - 1, 1LL << 31, 1LL << 32, (1LL << 40) + 3};
  const i64 bounds[] = {kUnlimited, 0, 5, (1LL << 31) - 1, 1LL << 31, 1LL << 32, kMax - 5, kMax};
  for (Alignment alignment : kAlignments) {
    for (i64 left : bounds) {
      for (i64 right : bounds) {
        const WindowRule rule{left, right, alignment};
        for (i64 q_len : lengths) {
          for (i64 kv_len : lengths) {
            for (i64 i : {i64{0}, q_len / 2, q_len - 1}) {
              const KeyRange keys = VisibleKeys(rule, i, q_len, kv_len);
              for (i64 j : {keys.begin - 1, keys.begin, keys.end - 1, keys.end, i64{0}, kv_len / 2,
                            kv_len - 1}) {
                ASSERT_EQ(keys.begin <= j && j < keys.end, IsVisible(rule, i, j, q_len, kv_len))
                    << "left " << left << " right " << right << " q_len " << q_len << " kv_len "
                    << kv_len << " i " << i << " j " << j;
              }
            }
          }
        }
      }
    }
  }
}

TEST(VisibleKeys, KnownCases) {
  const WindowRule causal{kUnlimited, 0, Alignment::kBottomRight};
  // 2 queries at the end of 5 keys.
  EXPECT_EQ(VisibleKeys(causal, 0, 2, 5).end, 4);
  EXPECT_EQ(VisibleKeys(causal, 1, 2, 5).end, 5);
  // 5 queries, 2 keys: the first three stand before every key.
  for (i64 i = 0; i < 3; ++i) {
    const KeyRange none = VisibleKeys(causal, i, 5, 2);
    EXPECT_EQ(none.begin, none.end) << i;
  }
  EXPECT_EQ(VisibleKeys(causal, 3, 5, 2).end, 1);
  // Window (3, 0): the 4 newest keys.
  const KeyRange newest = VisibleKeys({3, 0, Alignment::kBottomRight}, 9, 10, 10);
  EXPECT_EQ(newest.begin, 6);
  EXPECT_EQ(newest.end, 10);
  // Top-left lets later queries see every key.
  EXPECT_EQ(VisibleKeys({kUnlimited, 0, Alignment::kTopLeft}, 4, 5, 2).end, 2);
  EXPECT_EQ(VisibleKeys(causal, 0, 1, 0).end, 0);
}

TEST(AlibiBias, IsMinusSlopeTimesDistance) {
  EXPECT_EQ(AlibiBias(0.5f, 10, 4), -3.0f);
  EXPECT_EQ(AlibiBias(0.5f, 4, 10), -3.0f);
  EXPECT_EQ(AlibiBias(0.25f, 7, 7), 0.0f);
  EXPECT_EQ(AlibiBias(-1.0f, 0, 3), 3.0f);
  EXPECT_EQ(AlibiBias(1.0f, -2, 3), -5.0f);
  EXPECT_EQ(AlibiBias(1.0f, 0, 1LL << 32), -4294967296.0f);
}

static_assert(VisibleKeys({kUnlimited, kMax, Alignment::kTopLeft}, 1LL << 40, 1LL << 41, 1LL << 41)
                  .end == 1LL << 41);

}  // namespace
}  // namespace heed::device
