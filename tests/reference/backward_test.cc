// The oracle's gradients against central finite differences of its own forward pass.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "reference/attention.h"

namespace heed::reference {
namespace {

using device::Alignment;

Spec BaseSpec() {
  Spec spec;
  spec.batch = 2;
  spec.num_q_heads = 2;
  spec.num_kv_heads = 2;
  spec.q_len = 3;
  spec.kv_len = 5;
  spec.head_dim = 3;
  spec.head_dim_v = 2;
  return spec;
}

// (loss(x + h) - loss(x - h)) / 2h, with one Richardson step: error h^4.
template <class Real>
double Derivative(Attention& attention, Real* x, double step) {
  const Real saved = *x;
  const auto slope = [&](double h) {
    *x = static_cast<Real>(saved + h);
    const double above = attention.RunLoss();
    *x = static_cast<Real>(saved - h);
    const double below = attention.RunLoss();
    *x = saved;
    return (above - below) / (2 * h);
  };
  return (4 * slope(step / 2) - slope(step)) / 3;
}

// h^4 is 1e-12 and rounding 1e-15 / h = 1e-12; the factor covers the loss's magnitude and fifth
// derivatives.
constexpr double kStep = 1.0 / 1024;
constexpr double kTolerance = 1e-9;

void ExpectGradient(Attention& attention, std::vector<double>& input,
                    const std::vector<double>& gradient, const char* name) {
  for (std::size_t n = 0; n < input.size(); ++n) {
    const double expected = Derivative(attention, &input[n], kStep);
    ASSERT_NEAR(gradient[n], expected, kTolerance * (1 + std::abs(expected))) << name << " " << n;
  }
}

void ExpectAllGradients(const Spec& spec, std::uint32_t seed = 1) {
  Attention attention(spec, seed);
  attention.RunBackward();
  ExpectGradient(attention, attention.q, attention.dq, "dq");
  ExpectGradient(attention, attention.k, attention.dk, "dk");
  ExpectGradient(attention, attention.v, attention.dv, "dv");
  ExpectGradient(attention, attention.bias, attention.d_bias, "d_bias");
  for (std::size_t h = 0; h < attention.sinks.size(); ++h) {
    // Stored in fp32, hence one part in 2^24.
    const double expected = Derivative(attention, &attention.sinks[h], kStep);
    ASSERT_NEAR(attention.d_sinks[h], expected, 0x1p-23 * (1 + std::abs(expected))) << "sink " << h;
  }
}

struct Feature {
  const char* name;
  std::function<void(Spec&)> apply;
};

const std::vector<Feature>& Features() {
  static const std::vector<Feature> features = {
      {"plain", [](Spec&) {}},
      {"gqa", [](Spec& spec) { spec.num_q_heads = 4; }},
      {"softcap", [](Spec& spec) { spec.softcap = 1.5; }},
      {"causal", [](Spec& spec) { spec.window.right = 0; }},
      {"window", [](Spec& spec) { spec.window.left = spec.window.right = 1; }},
      {"topleft",
       [](Spec& spec) {
         spec.window = {2, 0, Alignment::kTopLeft};
       }},
      {"alibi", [](Spec& spec) { spec.has_alibi = true; }},
      {"bias", [](Spec& spec) { spec.has_bias = true; }},
      {"sharedbias",
       [](Spec& spec) {
         spec.has_bias = true;
         spec.bias_axes = {false, true, false, true};
       }},
      {"mask", [](Spec& spec) { spec.has_mask = true; }},
      {"sinks", [](Spec& spec) { spec.has_sinks = true; }},
      {"dropout", [](Spec& spec) { spec.dropout_p = 0.4; }},
      {"morequeries", [](Spec& spec) { spec.q_len = 7; }},
      {"packed",
       [](Spec& spec) {
         spec.cu_seqlens_q = {2, 5, 5};
         spec.cu_seqlens_kv = {1, 4, 8};
         spec.unused_tail_rows = 2;
       }},
      {"seqused",
       [](Spec& spec) {
         spec.seqused_q = {2, 0};
         spec.seqused_kv = {4, 3};
       }},
      {"paged",
       [](Spec& spec) {
         spec.page_slots = 2;
         spec.seqused_kv = {5, 2};
       }},
      {"negativescale", [](Spec& spec) { spec.scale = -0.5; }},
  };
  return features;
}

class Gradient : public testing::TestWithParam<Feature> {};

TEST_P(Gradient, MatchesFiniteDifferences) {
  Spec spec = BaseSpec();
  GetParam().apply(spec);
  ExpectAllGradients(spec);
}

INSTANTIATE_TEST_SUITE_P(Reference, Gradient, testing::ValuesIn(Features()),
                         [](const auto& test) { return test.param.name; });

// Features in random company; every pair meets in a few of the seeds.
TEST(GradientOfCombinations, MatchesFiniteDifferences) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Spec spec = BaseSpec();
    std::string names;
    for (const Feature& feature : Features()) {
      if (random() % 3 != 0) continue;
      const std::string name = feature.name;
      if (name == "paged" && !spec.cu_seqlens_kv.empty()) continue;
      if (name == "seqused" && !spec.cu_seqlens_kv.empty()) {
        spec.seqused_kv = {2, 4};
        names += " seqused_kv";
        continue;
      }
      feature.apply(spec);
      names += " " + name;
    }
    SCOPED_TRACE("seed " + std::to_string(seed) + ":" + names);
    ASSERT_NO_FATAL_FAILURE(ExpectAllGradients(spec, seed));
  }
}

TEST(Backward, RowsThatSeeNothingAndRowsOutsideGiveExactZeros) {
  Spec spec = BaseSpec();
  spec.batch = 1;
  spec.cu_seqlens_q = {2, 9};  // 7 queries on 3 keys: causal hides everything from the first 4
  spec.cu_seqlens_kv = {1, 4};
  spec.unused_tail_rows = 3;
  spec.window.right = 0;
  spec.has_sinks = true;
  Attention attention(spec);
  attention.sinks = {-INFINITY, -INFINITY};  // as good as none
  const double nan = std::nan("");
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t d = 0; d < 3; ++d) attention.q[attention.QIndex(0, i, head, d)] = nan;
      for (std::int64_t d = 0; d < 2; ++d) attention.d_o[attention.OIndex(0, i, head, d)] = nan;
      attention.d_lse[attention.LseIndex(0, head, i)] = nan;
    }
  }
  attention.RunBackward();
  constexpr std::int64_t kQRowElems = 2 * 3;
  for (std::size_t n = 0; n < attention.dq.size(); ++n) {
    const std::int64_t row = static_cast<std::int64_t>(n) / kQRowElems;
    if (row >= 6 && row < 9) {
      EXPECT_NE(attention.dq[n], 0.0) << n;
    } else {
      EXPECT_EQ(attention.dq[n], 0.0) << n;
    }
  }
  for (std::size_t n = 0; n < attention.dk.size(); ++n) {
    const std::int64_t row = static_cast<std::int64_t>(n) / kQRowElems;
    EXPECT_TRUE(std::isfinite(attention.dk[n]));
    if (row < 1 || row >= 4) {
      EXPECT_EQ(attention.dk[n], 0.0) << n;
    }
  }
  for (double value : attention.dv) EXPECT_TRUE(std::isfinite(value));
  for (float value : attention.d_sinks) EXPECT_EQ(value, 0.0f);
}

TEST(Backward, HiddenSlotsNeverInfluence) {
  Spec spec = BaseSpec();
  spec.kv_len = 8;
  spec.seqused_kv = {5, 3};
  spec.seqused_q = {2, 3};
  Attention clean(spec, 3);
  Attention poisoned(spec, 3);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t j = spec.seqused_kv[b]; j < 8; ++j) {
        for (std::int64_t d = 0; d < 3; ++d) {
          poisoned.k[poisoned.KvIndex(b, j, head, d, 3)] = std::nan("");
        }
        for (std::int64_t d = 0; d < 2; ++d) {
          poisoned.v[poisoned.KvIndex(b, j, head, d, 2)] = INFINITY;
        }
      }
      for (std::int64_t i = spec.seqused_q[b]; i < 3; ++i) {
        poisoned.q[poisoned.QIndex(b, i, head, 0)] = std::nan("");
        poisoned.d_o[poisoned.OIndex(b, i, head, 0)] = std::nan("");
        poisoned.d_lse[poisoned.LseIndex(b, head, i)] = std::nan("");
      }
    }
  }
  clean.RunBackward();
  poisoned.RunBackward();
  EXPECT_EQ(clean.dq, poisoned.dq);
  EXPECT_EQ(clean.dk, poisoned.dk);
  EXPECT_EQ(clean.dv, poisoned.dv);
}

// Two sequences that share every page: the gradients of both add up in the pool.
TEST(Backward, SharedPagesCollectBothSequences) {
  Spec spec = BaseSpec();
  spec.page_slots = 5;
  spec.seqused_kv = {5, 5};
  Attention shared(spec, 7);
  shared.block_table = {1, 1};
  shared.RunBackward();
  ExpectGradient(shared, shared.k, shared.dk, "dk");
  ExpectGradient(shared, shared.v, shared.dv, "dv");
}

}  // namespace
}  // namespace heed::reference
