// Case ids re-create cases; comparisons do not let NaN through.
#include <gtest/gtest.h>

#include <cmath>

#include "support/comparison.h"
#include "support/forward_case.h"
#include "support/forward_instance.h"

namespace heed::test {
namespace {

TEST(CaseId, ReCreatesEveryGeneratedCase) {
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const ForwardCase generated = GenerateCase(7, index, 1e7);
    const std::string id = FormatCaseId(generated);
    std::string error;
    const auto parsed = ParseCaseId(id, &error);
    ASSERT_TRUE(parsed.has_value()) << id << ": " << error;
    ASSERT_EQ(*parsed, generated) << id << " became " << FormatCaseId(*parsed);
  }
}

TEST(CaseId, NamesTheWrongToken) {
  std::string error;
  EXPECT_FALSE(ParseCaseId("fwd:b2:hq4:windmill:s1", &error));
  EXPECT_EQ(error, "unknown token 'windmill'");
  EXPECT_FALSE(ParseCaseId("bwd:b2", &error));
  EXPECT_FALSE(ParseCaseId("", &error));
}

TEST(CaseId, SameIdGivesSameBits) {
  const ForwardCase generated = GenerateCase(7, 3, 1e6);
  ForwardInstance first(generated);
  ForwardInstance second(generated);
  ForEachIndex(first.q().shape(), [&](const Indices& index) {
    const double a = first.q().At(index);
    const double b = second.q().At(index);
    ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)));
  });
}

TEST(Comparison, NanAgainstNumberIsAMismatchInBothDirections) {
  EXPECT_GT(ErrorRatio(1.0, std::nan(""), 1e9), 1.0);
  EXPECT_GT(ErrorRatio(std::nan(""), 1.0, 1e9), 1.0);
  EXPECT_EQ(ErrorRatio(std::nan(""), std::nan(""), 0.0), 0.0);
}

TEST(Comparison, InfinitiesMustAgree) {
  EXPECT_EQ(ErrorRatio(-HUGE_VAL, -HUGE_VAL, 0.0), 0.0);
  EXPECT_GT(ErrorRatio(-HUGE_VAL, HUGE_VAL, 1e9), 1.0);
  EXPECT_GT(ErrorRatio(-HUGE_VAL, -1e30, 1e9), 1.0);
  EXPECT_GT(ErrorRatio(0.0, -HUGE_VAL, 1e9), 1.0);
  EXPECT_GT(ErrorRatio(1.0, 1.5, std::nan("")), 1.0);
}

TEST(Comparison, KeepsTheWorstElement) {
  Comparison comparison;
  comparison.Add("o", {0, 0}, 1.0, 1.0 + 1e-7, 1e-6);
  EXPECT_TRUE(comparison.ok());
  comparison.Add("o", {0, 1}, 1.0, 1.5, 1e-6);
  comparison.Add("o", {0, 2}, 1.0, 1.1, 1e-6);
  EXPECT_FALSE(comparison.ok());
  EXPECT_EQ(comparison.num_mismatches(), 2);
  EXPECT_EQ(comparison.Describe(), "o[0, 1] = 1.5, expected 1, bound 1e-06 (2 of 3 differ)");
}

}  // namespace
}  // namespace heed::test
