// The forward oracle against closed forms and hand-computed values.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "device/dropout.h"
#include "device/mask.h"
#include "reference/attention.h"
#include "reference/softmax_row.h"

namespace heed::reference {
namespace {

using device::Alignment;

constexpr double kRounding = 1e-14;

Spec SmallSpec(std::int64_t q_len, std::int64_t kv_len) {
  Spec spec;
  spec.q_len = q_len;
  spec.kv_len = kv_len;
  spec.head_dim = 2;
  spec.head_dim_v = 3;
  return spec;
}

TEST(Forward, EqualScoresGiveTheMeanOfV) {
  Attention attention(SmallSpec(1, 5));
  std::fill(attention.q.begin(), attention.q.end(), 0.0);
  attention.RunForward();
  for (int d = 0; d < 3; ++d) {
    double sum = 0;
    for (int j = 0; j < 5; ++j) sum += attention.v[attention.KvIndex(0, j, 0, d, 3)];
    EXPECT_NEAR(attention.o[d], sum / 5, kRounding);
  }
  EXPECT_NEAR(attention.lse[0], std::log(5.0), kRounding);
}

TEST(Forward, OneKeyGivesItsValue) {
  Attention attention(SmallSpec(1, 1));
  attention.RunForward();
  for (int d = 0; d < 3; ++d) EXPECT_EQ(attention.o[d], attention.v[d]);
  const double product = attention.q[0] * attention.k[0] + attention.q[1] * attention.k[1];
  EXPECT_NEAR(attention.lse[0], 0.7 * product, kRounding);
}

TEST(Forward, TwoKeysByTheLogisticFormula) {
  Spec spec = SmallSpec(1, 2);
  spec.softcap = 2.0;
  spec.has_bias = true;
  spec.has_alibi = true;
  spec.has_sinks = true;
  Attention attention(spec);
  attention.q = {1.0, 2.0};
  attention.k = {0.5, -1.0, 1.5, 0.25};
  attention.v = {1, 2, 3, 4, 5, 6};
  attention.bias = {0.25, -0.5};
  attention.alibi_slopes = {0.125f};
  attention.sinks = {0.5f};
  attention.RunForward();
  // The query stands on the last key (bottom right), one past the first.
  const double s0 = 2 * std::tanh(0.7 * (0.5 - 2.0) / 2) + 0.25 - 0.125;
  const double s1 = 2 * std::tanh(0.7 * (1.5 + 0.5) / 2) - 0.5;
  const double sum = std::exp(s0) + std::exp(s1) + std::exp(0.5);
  for (int d = 0; d < 3; ++d) {
    const double expected = (std::exp(s0) * (1 + d) + std::exp(s1) * (4 + d)) / sum;
    EXPECT_NEAR(attention.o[d], expected, kRounding);
  }
  EXPECT_NEAR(attention.lse[0], std::log(sum), kRounding);
}

TEST(Forward, HugeScoresDoNotOverflow) {
  Spec spec = SmallSpec(1, 3);
  spec.scale = 1e5;
  Attention attention(spec);
  attention.q = {1.0, 0.0};
  attention.k = {1.0, 0.0, 3.0, 0.0, 2.0, 0.0};
  attention.RunForward();
  for (int d = 0; d < 3; ++d) EXPECT_EQ(attention.o[d], attention.v[3 + d]);
  EXPECT_EQ(attention.lse[0], 3e5);
}

TEST(Forward, EqualScoresThatHideTheirSumGiveTheMeanOfV) {
  Attention attention(SmallSpec(1, 4));
  attention.q = {1e20, 0.0};
  for (int j = 0; j < 4; ++j) attention.k[attention.KvIndex(0, j, 0, 0, 2)] = 1e20;
  attention.RunForward();
  for (int d = 0; d < 3; ++d) {
    double sum = 0;
    for (int j = 0; j < 4; ++j) sum += attention.v[attention.KvIndex(0, j, 0, d, 3)];
    EXPECT_NEAR(attention.o[d], sum / 4, kRounding);
  }
}

TEST(Forward, EmptyRowsGiveZeroAndMinusInfinityOrTheSink) {
  for (bool has_sinks : {false, true}) {
    Spec spec = SmallSpec(4, 2);  // causal, bottom right: the first two queries see nothing
    spec.window.right = 0;
    spec.has_sinks = has_sinks;
    Attention attention(spec);
    attention.RunForward();
    for (int i = 0; i < 2; ++i) {
      for (int d = 0; d < 3; ++d) EXPECT_EQ(attention.o[attention.OIndex(0, i, 0, d)], 0.0);
      EXPECT_EQ(attention.lse[i], has_sinks ? attention.sinks[0] : -INFINITY);
    }
    EXPECT_NE(attention.o[attention.OIndex(0, 2, 0, 0)], 0.0);
  }
}

TEST(Forward, ANanKeyReachesExactlyTheRowsThatSeeIt) {
  Spec spec = SmallSpec(3, 3);
  spec.window = {0, 0, Alignment::kBottomRight};  // query i sees key i alone
  Attention attention(spec);
  attention.k[attention.KvIndex(0, 1, 0, 0, 2)] = std::nan("");
  attention.RunForward();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(std::isnan(attention.lse[i]), i == 1) << i;
    EXPECT_EQ(std::isnan(attention.o[attention.OIndex(0, i, 0, 0)]), i == 1) << i;
  }
}

TEST(Forward, BiasOfMinusInfinityHides) {
  Spec spec = SmallSpec(2, 3);
  spec.has_bias = true;
  Attention by_bias(spec, 5);
  by_bias.bias = {0, -INFINITY, 0, -INFINITY, -INFINITY, -INFINITY};
  by_bias.RunForward();
  spec.has_bias = false;
  spec.has_mask = true;
  Attention by_mask(spec, 5);
  by_mask.mask = {1, 0, 1, 0, 0, 0};
  by_mask.RunForward();
  EXPECT_EQ(by_bias.o, by_mask.o);
  EXPECT_EQ(by_bias.lse, by_mask.lse);
  EXPECT_EQ(by_bias.lse[1], -INFINITY);
}

TEST(Forward, DropoutUsesTheDefinedMaskAndScale) {
  Spec spec = SmallSpec(3, 20);
  spec.batch = 2;
  spec.num_q_heads = 2;
  spec.num_kv_heads = 1;
  spec.dropout_p = 0.25;
  Attention attention(spec);
  std::fill(attention.q.begin(), attention.q.end(), 0.0);
  std::fill(attention.v.begin(), attention.v.end(), 1.0);
  attention.RunForward();
  for (int b = 0; b < 2; ++b) {
    for (int h = 0; h < 2; ++h) {
      for (int i = 0; i < 3; ++i) {
        int kept = 0;
        for (int j = 0; j < 20; ++j) {
          const auto head_index = static_cast<std::uint32_t>(b * 2 + h);
          kept += device::DropoutNumber(0x5eed, 3, head_index, i, j) >= 16384 ? 1 : 0;
        }
        EXPECT_NEAR(attention.o[attention.OIndex(b, i, h, 0)], kept / 20.0 / 0.75, kRounding);
        EXPECT_NEAR(attention.lse[attention.LseIndex(b, h, i)], std::log(20.0), kRounding);
      }
    }
  }
}

// device/mask.h and the oracle state the rule separately; they agree on every small case.
TEST(Forward, VisibleKeysAgreeWithTheKernelsArithmetic) {
  for (Alignment alignment : {Alignment::kBottomRight, Alignment::kTopLeft}) {
    for (std::int64_t left = -1; left <= 4; ++left) {
      for (std::int64_t right = -1; right <= 4; ++right) {
        for (std::int64_t q_len = 1; q_len <= 5; ++q_len) {
          for (std::int64_t kv_len = 0; kv_len <= 5; ++kv_len) {
            Spec spec = SmallSpec(q_len, kv_len);
            spec.window = {left, right, alignment};
            Attention attention(spec);
            const core::ForwardProblem problem = attention.MakeForwardProblem();
            const Head head = LoadHead(problem, 0, 0);
            for (std::int64_t i = 0; i < q_len; ++i) {
              const device::KeyRange range = device::VisibleKeys(spec.window, i, q_len, kv_len);
              std::vector<std::int64_t> expected(static_cast<std::size_t>(range.end - range.begin));
              std::iota(expected.begin(), expected.end(), range.begin);
              ASSERT_EQ(ComputeSoftmaxRow(head, i).keys, expected)
                  << "left " << left << " right " << right << " q_len " << q_len << " kv_len "
                  << kv_len << " i " << i;
            }
          }
        }
      }
    }
  }
}

TEST(Forward, RowsPastSequsedAreZeroAndRowsOutsideUntouched) {
  Spec spec = SmallSpec(0, 0);
  spec.batch = 2;
  spec.has_sinks = true;
  spec.cu_seqlens_q = {1, 4, 6};
  spec.cu_seqlens_kv = {2, 5, 5};  // the second sequence has no keys
  spec.seqused_q = {2, 2};
  spec.unused_tail_rows = 1;
  Attention attention(spec);
  const std::vector<double> untouched(3, attention.o[0]);
  attention.RunForward();
  const auto row = [&](int index) {
    return std::vector<double>(attention.o.begin() + 3 * index,
                               attention.o.begin() + 3 * index + 3);
  };
  const std::vector<double> zero(3, 0.0);
  EXPECT_EQ(row(0), untouched);
  EXPECT_NE(row(1), zero);
  EXPECT_NE(row(2), zero);
  EXPECT_EQ(row(3), zero);
  EXPECT_EQ(attention.lse[3], -INFINITY);  // takes no part, so no sink either
  EXPECT_EQ(row(4), zero);
  EXPECT_EQ(attention.lse[4], attention.sinks[0]);
  EXPECT_EQ(row(6), untouched);
}

TEST(Forward, ZeroSizesAreLegal) {
  for (auto [batch, q_len, kv_len] : {std::array<int, 3>{0, 3, 3}, {1, 0, 3}, {1, 3, 0}}) {
    Spec spec = SmallSpec(q_len, kv_len);
    spec.batch = batch;
    Attention attention(spec);
    attention.RunForward();
    attention.RunBackward();
    for (double value : attention.o) EXPECT_EQ(value, 0.0);
    for (double value : attention.lse) EXPECT_EQ(value, -INFINITY);
    for (double value : attention.dq) EXPECT_EQ(value, 0.0);
    for (double value : attention.dk) EXPECT_EQ(value, 0.0);
  }
}

}  // namespace
}  // namespace heed::reference
