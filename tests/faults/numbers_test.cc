// Extreme scores and values, scale, softcap.
#include <gtest/gtest.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cmath>
#include <limits>

#include "support/attention_call.h"

namespace heed::test {
namespace {

void FillWith(StridedTensor& tensor, double value) {
  tensor.Fill([=](const Indices&) { return value; });
}

// pytorch/pytorch#121558: one key has weight 1, however large its score.
TEST(Faults, B091_SingleKeyWithAHugeScore) {
  AttentionCall call(Element::kBF16, {1, 1, 1, 64}, {1, 1, 1, 64}, {1, 1, 1, 64});
  FillWith(call.q, 133120.0);
  FillWith(call.k, 133120.0);
  FillWith(call.v, 133120.0);
  call.OnEveryKernel([&] { ExpectSameValues(call.v, call.o); });
}

// The same for a sweep of magnitudes of both signs, up to scores near the top of the fp32 range.
TEST(Faults, B091_ScoresOfEveryMagnitude) {
  AttentionCall call(Element::kF32, {1, 2, 1, 3}, {1, 1, 1, 3}, {1, 1, 1, 3});
  FillWith(call.v, 1.0);
  for (double magnitude = 1.7; magnitude < 3e18; magnitude *= 31.7) {
    FillWith(call.k, magnitude);
    call.q.Fill([&](const Indices& at) { return at[1] == 0 ? magnitude : -magnitude; });
    call.OnEveryKernel([&] {
      for (std::int64_t row = 0; row < 2; ++row) {
        for (const double value : call.OutputRow({0, row, 0})) {
          EXPECT_NEAR(value, 1.0, 1e-6) << magnitude << " row " << row;
        }
      }
    });
  }
}

// philipturner/metal-flash-attention#8: q.k = 102400 is above the fp16 range.
TEST(Faults, B095_ScoresBeyondTheHalfRange) {
  AttentionCall call(Element::kF16, {1, 1, 1, 64}, {1, 2, 1, 64}, {1, 2, 1, 1});
  FillWith(call.q, 40.0);
  call.k.Fill([](const Indices& at) { return at[1] == 0 ? 40.0 : 39.9; });
  call.v.Fill([](const Indices& at) { return at[1] == 0 ? 1.0 : -1.0; });
  // The second key scores 40 * 64 * (40 - fp16(39.9)) / 8 = 30 less.
  call.OnEveryKernel([&] { EXPECT_EQ(call.o.At({0, 0, 0, 0}), 1.0); });
}

// ggml-org/llama.cpp#6646: one outlier channel.
TEST(Faults, B096_OutlierChannel) {
  for (const std::int64_t head_dim : {80, 128}) {
    AttentionCall call(Element::kF16, {1, 3, 1, head_dim}, {1, 4, 1, head_dim}, {1, 4, 1, 1});
    call.q.Fill([](const Indices& at) { return at[3] == 7 ? 300.0 : 0.0; });
    call.k.Fill([](const Indices& at) {
      return at[3] == 7 ? 300.0 : at[3] == 8 ? static_cast<double>(at[1]) : 0.0;
    });
    call.v.Fill([](const Indices& at) { return static_cast<double>(at[1]); });
    // All four scores are 90000 / sqrt(D): uniform weights.
    call.OnEveryKernel([&] { EXPECT_NEAR(call.o.At({0, 2, 0, 0}), 1.5, 1e-3); });
  }
}

// ikawrakow/ik_llama.cpp#1196: the sum of weights, 65536, is above the fp16 range.
TEST(Faults, B097_SumOfWeightsBeyondTheHalfRange) {
  AttentionCall call(Element::kF16, {1, 1, 1, 8}, {1, 65536, 1, 8}, {1, 65536, 1, 8});
  FillWith(call.q, 0.0);
  FillWith(call.k, 1.0);
  FillWith(call.v, 2.0);
  call.OnEveryKernel([&] {
    for (const double value : call.OutputRow({0, 0, 0})) EXPECT_EQ(value, 2.0);
  });
}

// Dao-AILab/flash-attention#1071: errors follow the derived bounds at growing lengths.
TEST(Faults, B098_ErrorStaysWithinItsBound) {
  ExpectCasePasses("fwd:b1:hq1:hkv1:sq128:skv128:d64:dv64:bf16:s1");
  ExpectCasePasses("fwd:b1:hq1:hkv1:sq16:skv4096:d128:dv128:f16:s2");
  ExpectCasePasses("fwd:b1:hq1:hkv1:sq3:skv16384:d64:dv64:bf16:s3");
  ExpectCasePasses("fwd:b1:hq1:hkv1:sq3:skv16384:d64:dv64:f32:s4");
}

// Dao-AILab/flash-attention#1461
TEST(Faults, B103_AnyFiniteScale) {
  AttentionCall call(Element::kF32, {1, 8, 1, 4}, {1, 8, 1, 4}, {1, 8, 1, 1});
  call.FillNormal(1);
  call.v.Fill([](const Indices& at) { return static_cast<double>(at[1]); });
  call.score.causal = HEED_CAUSAL_ON;
  double scale = 0.0;
  call.score.scale = &scale;
  // The mean of 0 .. row.
  const auto expect_uniform = [&] {
    for (std::int64_t row = 0; row < 8; ++row) {
      EXPECT_NEAR(call.o.At({0, row, 0, 0}), static_cast<double>(row) / 2, 1e-5);
    }
  };
  call.OnEveryKernel(expect_uniform);
  scale = 1e-30;
  call.OnEveryKernel(expect_uniform);

  scale = -0.5;
  call.OnEveryKernel([&] {
    const std::vector<double> negative = call.OutputRow({0, 7, 0});
    scale = 0.5;
    call.q.Fill([&](const Indices& at) { return -call.q.At(at); });
    ASSERT_EQ(call.Run(), HEED_OK);
    EXPECT_EQ(call.OutputRow({0, 7, 0}), negative);
    call.q.Fill([&](const Indices& at) { return -call.q.At(at); });
    scale = -0.5;
  });
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    scale = bad;
    call.ExpectRefused(HEED_INVALID_ARGUMENT, {"scale"});
  }
}

// ggml-org/llama.cpp#8542: scores of 400 and more under a softcap of 50.
TEST(Faults, B114_SoftcapOfLargeScores) {
  AttentionCall call(Element::kF16, {1, 1, 2, 256}, {1, 2, 1, 256}, {1, 2, 1, 1});
  FillWith(call.q, 5.0);
  call.k.Fill([](const Indices& at) { return at[1] == 0 ? 5.0 : 0.0; });
  call.v.Fill([](const Indices& at) { return at[1] == 0 ? 1.0 : 0.0; });
  call.score.softcap = 0.5;
  // 5 * 5 * 256 / 16 = 400 is capped at 0.5; the other score is 0.
  const double weight = std::exp(0.5);
  call.OnEveryKernel([&] { EXPECT_NEAR(call.o.At({0, 0, 1, 0}), weight / (1 + weight), 1e-3); });
  ExpectCasePasses("fwd:b1:hq4:hkv2:sq9:skv33:d256:dv256:f16:cap50:large-scores:s1");
}

// fp32 and bf16 subnormals may be taken as 0, fp16 ones may not: the contract of heed.h. One key,
// so that o is v.
TEST(Faults, SubnormalValues) {
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    AttentionCall call(element, {1, 1, 1, 2}, {1, 1, 1, 2}, {1, 1, 1, 2});
    call.FillNormal(3);
    const double subnormal = element == Element::kF16 ? 0x1p-20 : 0x1p-130;
    call.v.Fill([&](const Indices& at) { return at[3] == 0 ? subnormal : 0x1p-14; });
    call.OnEveryKernel([&] {
      const double value = call.o.At({0, 0, 0, 0});
      const bool may_be_zero =
          element != Element::kF16 && call.exec.backend != HEED_BACKEND_REFERENCE;
      EXPECT_TRUE(value == subnormal || (may_be_zero && value == 0.0)) << value;
      EXPECT_EQ(call.o.At({0, 0, 0, 1}), 0x1p-14);
    });
  }
}

// Scores 2 and 0; v tells the weight of the first key.
void ExpectFirstWeight(AttentionCall& call, double weight) {
  FillWith(call.q, 2.0);
  call.k.Fill([](const Indices& at) { return at[1] == 0 ? 1.0 : 0.0; });
  call.v.Fill([](const Indices& at) { return at[1] == 0 ? 1.0 : 0.0; });
  call.OnEveryKernel([&] { EXPECT_NEAR(call.o.At({0, 0, 0, 0}), weight, 1e-6); });
}

// At its bounds a cap still is one: all scores alike below the smallest, none bent by the largest.
TEST(Faults, SoftcapAtItsBounds) {
  AttentionCall call(Element::kF32, {1, 1, 1, 1}, {1, 2, 1, 1}, {1, 2, 1, 1});
  call.score.softcap = 0x1p-100;
  ExpectFirstWeight(call, 0.5);
  call.score.softcap = 0x1p100;
  ExpectFirstWeight(call, std::exp(2.0) / (std::exp(2.0) + 1.0));
}

// 2^127 * 2^-60 * 2^-65 = 4: the scale counts in full, with and without its product with log2(e).
TEST(Faults, LargestScales) {
  AttentionCall call(Element::kF32, {1, 1, 1, 1}, {1, 2, 1, 1}, {1, 2, 1, 1});
  const double scale = 0x1p127;
  call.score.scale = &scale;
  FillWith(call.q, 0x1p-60);
  call.k.Fill([](const Indices& at) { return at[1] == 0 ? 0x1p-65 : 0.0; });
  call.v.Fill([](const Indices& at) { return at[1] == 0 ? 1.0 : 0.0; });
  for (const double softcap : {0.0, 0x1p20}) {
    call.score.softcap = softcap;
    call.OnEveryKernel([&] {
      EXPECT_NEAR(call.o.At({0, 0, 0, 0}), std::exp(4.0) / (std::exp(4.0) + 1.0), 1e-6);
      EXPECT_NEAR(call.lse.At({0, 0, 0}), std::log1p(std::exp(4.0)), 4e-6);
    });
  }
}

// microsoft/onnxruntime#28520: every key of a step contributes.
TEST(Faults, B215_EveryKeyContributesOnce) {
  AttentionCall call(Element::kF32, {1, 3, 1, 8}, {1, 64, 1, 8}, {1, 64, 1, 64});
  FillWith(call.q, 1.0);
  FillWith(call.k, 1.0);
  call.v.Fill([](const Indices& at) { return at[1] == at[3] ? 1.0 : 0.0; });
  call.OnEveryKernel([&] {
    ForEachIndex(call.o.shape(),
                 [&](const Indices& at) { EXPECT_NEAR(call.o.At(at), 1.0 / 64, 1e-8); });
  });
}

// LaurentMazare/tch-rs#971: a library may flush tiny numbers inside its own workers, but the
// caller's floating-point state is the caller's.
TEST(Faults, B202_FloatingPointStateOfTheCallerSurvives) {
  AttentionCall call(Element::kF32, {1, 50, 1, 8}, {1, 50, 1, 8}, {1, 50, 1, 8});
  call.FillNormal(2);
  call.v.Fill([](const Indices& at) { return 1e-39 * static_cast<double>(at[1]); });
  for (const std::int32_t num_threads : {1, 3}) {
    call.exec.num_threads = num_threads;
    call.OnEveryKernel([] {
      volatile float tiny = 1e-39f;
      EXPECT_GT(tiny * 0.5f, 0.0f) << "subnormals are flushed after the call";
    });
#if defined(__SSE__)
    const unsigned before = _mm_getcsr();
    ASSERT_EQ(call.Run(), HEED_OK);
    constexpr unsigned kExceptionFlags = 0x3f;
    EXPECT_EQ(before & ~kExceptionFlags, _mm_getcsr() & ~kExceptionFlags);
#endif
  }
}

}  // namespace
}  // namespace heed::test
