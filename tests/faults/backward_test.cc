// Faults of backward passes.
#include <gtest/gtest.h>

#include <cmath>

#include "faults/backward_call.h"

namespace heed::test {
namespace {

// Central difference of sum(o * d_o) with respect to one element of `tensor`. For float64 calls.
double NumericGradient(BackwardCall& call, StridedTensor& tensor, const Indices& at) {
  constexpr double kStep = 1e-5;
  const double original = tensor.At(at);
  double loss[2];
  for (int side = 0; side < 2; ++side) {
    tensor.Set(at, original + (side == 0 ? kStep : -kStep));
    EXPECT_EQ(call.Run(), HEED_OK);
    loss[side] = 0.0;
    ForEachIndex(call.o.shape(),
                 [&](const Indices& o_at) { loss[side] += call.o.At(o_at) * call.d_o.At(o_at); });
  }
  tensor.Set(at, original);
  return (loss[0] - loss[1]) / (2 * kStep);
}

// pytorch/pytorch#103749, gradient side.
TEST(Faults, B001_GradientsOfAnEmptyRow) {
  BackwardCall call(Element::kF32, {1, 6, 2, 8}, {1, 10, 2, 8}, {1, 10, 2, 8});
  StridedTensor mask(Element::kBool, {1, 1, 6, 10});
  mask.Fill([](const Indices& at) { return at[2] < 5 && at[3] <= at[2] ? 1.0 : 0.0; });
  call.score.mask = mask.abi();
  call.RunBoth();
  for (const StridedTensor* gradient : {&call.dq, &call.dk, &call.dv}) ExpectNoNan(*gradient);
  for (std::int64_t dim = 0; dim < 8; ++dim) {
    EXPECT_EQ(call.dq.At({0, 5, 1, dim}), 0.0);
    for (std::int64_t key = 5; key < 10; ++key) {
      EXPECT_EQ(call.dk.At({0, key, 1, dim}), 0.0);
      EXPECT_EQ(call.dv.At({0, key, 1, dim}), 0.0);
    }
  }
}

// Dao-AILab/flash-attention#2562
TEST(Faults, B016_GradientsOfKeysWithoutQueries) {
  BackwardCall call(Element::kBF16, {20, 4, 16}, {82, 1, 16}, {82, 1, 16});
  IntTensor cu_q({0, 0, 12, 20, 20});
  IntTensor cu_kv({0, 25, 43, 51, 82});
  call.varlen.cu_seqlens_q = cu_q.abi();
  call.varlen.cu_seqlens_kv = cu_kv.abi();
  call.RunBoth();
  for (const StridedTensor* gradient : {&call.dk, &call.dv}) {
    ForEachIndex(gradient->shape(), [&](const Indices& at) {
      EXPECT_EQ(gradient->At(at) == 0.0, at[0] < 25 || at[0] >= 51) << ToString(at);
    });
  }
  ExpectNoNan(call.dq);
}

// pytorch/pytorch#188933: tokens past the last offset took no part.
TEST(Faults, B028_GradientsPastTheLastOffsetAreZero) {
  BackwardCall call(Element::kF32, {46, 2, 8}, {46, 2, 8}, {46, 2, 8});
  IntTensor cu({0, 14, 43, 44});
  call.varlen.cu_seqlens_q = cu.abi();
  call.varlen.cu_seqlens_kv = cu.abi();
  call.RunBoth();
  for (const StridedTensor* gradient : {&call.dq, &call.dk, &call.dv}) {
    ExpectNoNan(*gradient);
    for (std::int64_t row = 44; row < 46; ++row) EXPECT_EQ(gradient->At({row, 1, 3}), 0.0);
  }
}

// NVIDIA/TransformerEngine#2186: lse of padding rows must not enter.
TEST(Faults, B033_PaddingRowsDoNotEnterTheGradients) {
  BackwardCall call(Element::kF32, {28, 1, 8}, {28, 1, 8}, {28, 1, 8});
  IntTensor cu({0, 12, 20, 28});
  IntTensor used({9, 8, 8});
  call.varlen.cu_seqlens_q = call.varlen.cu_seqlens_kv = cu.abi();
  call.varlen.seqused_q = call.varlen.seqused_kv = used.abi();
  call.RunBoth();
  StridedTensor expected(Element::kF32, call.dk.shape());
  expected.Fill([&](const Indices& at) { return call.dk.At(at); });
  for (std::int64_t row = 9; row < 12; ++row) {
    call.lse.Set({0, row}, 1e30);
    for (std::int64_t dim = 0; dim < 8; ++dim) {
      for (StridedTensor* input : {&call.q, &call.k, &call.v, &call.d_o}) {
        input->SetPoison({row, 0, dim}, Poison::kNaN);
      }
      EXPECT_EQ(expected.At({row, 0, dim}), 0.0);
    }
  }
  ASSERT_EQ(heed_backward(&call.backward), HEED_OK) << heed_last_error();
  ExpectSameValues(expected, call.dk);
}

// Dao-AILab/flash-attention#355 and pytorch/pytorch#138529: d_o transposed, or one number
// expanded. The last axis must be contiguous; anything else is refused by name.
TEST(Faults, B059_B060_StridedOutputGradient) {
  BackwardCall call(Element::kF32, {2, 5, 3, 8}, {2, 7, 3, 8}, {2, 7, 3, 8});
  call.RunBoth();
  StridedTensor expected(Element::kF32, call.dv.shape());
  expected.Fill([&](const Indices& at) { return call.dv.At(at); });
  StridedTensor transposed(Element::kF32, call.d_o.shape(), {120, 8, 40, 1});
  transposed.Fill([&](const Indices& at) { return call.d_o.At(at); });
  call.backward.d_o = transposed.abi();
  ASSERT_EQ(heed_backward(&call.backward), HEED_OK) << heed_last_error();
  ExpectSameValues(expected, call.dv);

  call.d_o.Fill([](const Indices&) { return 1.0; });
  call.backward.d_o = call.d_o.abi();
  ASSERT_EQ(heed_backward(&call.backward), HEED_OK);
  expected.Fill([&](const Indices& at) { return call.dv.At(at); });
  StridedTensor row_of_ones(Element::kF32, call.d_o.shape(), {0, 0, 0, 1});
  row_of_ones.Fill([](const Indices&) { return 1.0; });
  call.backward.d_o = row_of_ones.abi();
  ASSERT_EQ(heed_backward(&call.backward), HEED_OK) << heed_last_error();
  ExpectSameValues(expected, call.dv);

  StridedTensor single_one(Element::kF32, call.d_o.shape(), {0, 0, 0, 0});
  single_one.Fill([](const Indices&) { return 1.0; });
  call.backward.d_o = single_one.abi();
  EXPECT_EQ(heed_backward(&call.backward), HEED_INVALID_ARGUMENT);
  EXPECT_NE(std::string(heed_last_error()).find("d_o.strides[3]"), std::string::npos)
      << heed_last_error();
}

// Dao-AILab/flash-attention#1817: a loss on lse has a gradient.
TEST(Faults, B089_GradientThroughLse) {
  BackwardCall call(Element::kF64, {1, 4, 2, 6}, {1, 5, 1, 6}, {1, 5, 1, 6});
  call.d_o.Fill([](const Indices&) { return 0.0; });
  StridedTensor d_lse(Element::kF64, call.lse.shape());
  d_lse.Fill([](const Indices&) { return 1.0 / 8; });
  call.backward.d_lse = d_lse.abi();
  call.RunBoth();
  ExpectAllZero(call.dv);
  constexpr double kStep = 1e-5;
  const Indices at{0, 2, 1, 3};
  const double gradient = call.dq.At(at);
  double loss[2];
  const double original = call.q.At(at);
  for (int side = 0; side < 2; ++side) {
    call.q.Set(at, original + (side == 0 ? kStep : -kStep));
    ASSERT_EQ(call.Run(), HEED_OK);
    loss[side] = 0.0;
    ForEachIndex(call.lse.shape(),
                 [&](const Indices& lse_at) { loss[side] += call.lse.At(lse_at) / 8; });
  }
  EXPECT_NEAR(gradient, (loss[0] - loss[1]) / (2 * kStep), 1e-8);
  EXPECT_NE(gradient, 0.0);
}

// NVIDIA/cudnn-frontend#1072: scores shifted far down.
TEST(Faults, B094_GradientsOfVeryNegativeScores) {
  for (const std::int64_t kv_len : {97, 128}) {
    BackwardCall call(Element::kF32, {1, 1, 1, 128}, {1, kv_len, 1, 128}, {1, kv_len, 1, 128});
    StridedTensor shift(Element::kF32, {1, 1, 1, 1});
    call.RunBoth();
    StridedTensor expected(Element::kF32, call.dv.shape());
    expected.Fill([&](const Indices& at) { return call.dv.At(at); });
    shift.Fill([](const Indices&) { return -128.0; });
    call.score.bias = shift.abi();
    call.RunBoth();
    ForEachIndex(expected.shape(),
                 [&](const Indices& at) { EXPECT_NEAR(call.dv.At(at), expected.At(at), 1e-5); });
  }
}

// ROCm/aiter#3742: keys outside every window have no gradient; the others the right one.
TEST(Faults, B110_WindowGradients) {
  const std::int64_t windows[][2] = {{7, 0}, {0, 7}, {5, 3}};
  for (const auto& [left, right] : windows) {
    BackwardCall call(Element::kF64, {1, 9, 1, 4}, {1, 31, 1, 4}, {1, 31, 1, 4});
    call.score.window_left = left;
    call.score.window_right = right;
    call.RunBoth();
    for (std::int64_t key = 0; key < 31; ++key) {
      const bool is_seen = key >= 22 - left;  // query 0 stands at position 22
      EXPECT_EQ(call.dv.At({0, key, 0, 1}) != 0.0, is_seen) << key;
    }
    const double gradient = call.dk.At({0, 25, 0, 2});
    EXPECT_NEAR(gradient, NumericGradient(call, call.k, {0, 25, 0, 2}), 1e-7);
  }
}

// Dao-AILab/flash-attention#2544: the derivative of the softcap.
TEST(Faults, B112_B113_SoftcapGradients) {
  BackwardCall call(Element::kF64, {1, 5, 1, 8}, {1, 7, 1, 8}, {1, 7, 1, 8});
  call.score.softcap = 1.5;
  call.score.causal = HEED_CAUSAL_ON;
  call.RunBoth();
  const double dq = call.dq.At({0, 3, 0, 5});
  const double dk = call.dk.At({0, 2, 0, 1});
  EXPECT_NEAR(dq, NumericGradient(call, call.q, {0, 3, 0, 5}), 1e-7);
  EXPECT_NEAR(dk, NumericGradient(call, call.k, {0, 2, 0, 1}), 1e-7);
}

// facebookresearch/xformers#783: a broadcast bias gets the sum over its missing axes.
TEST(Faults, B119_GradientOfABroadcastBias) {
  BackwardCall call(Element::kF64, {2, 3, 2, 4}, {2, 5, 2, 4}, {2, 5, 2, 4});
  StridedTensor bias(Element::kF64, {1, 2, 3, 5});
  StridedTensor d_bias(Element::kF64, {1, 2, 3, 5});
  bias.Fill([](const Indices& at) { return 0.1 * static_cast<double>(at[3] - at[2]); });
  call.score.bias = bias.abi();
  call.backward.d_bias = d_bias.abi();
  call.RunBoth();
  const double gradient = d_bias.At({0, 1, 2, 3});
  EXPECT_NEAR(gradient, NumericGradient(call, bias, {0, 1, 2, 3}), 1e-7);
}

// XunhaoLai/native-sparse-attention-triton#27: ratio 3.
TEST(Faults, B124_GroupsAddUpInKvGradients) {
  BackwardCall call(Element::kF64, {1, 4, 6, 8}, {1, 5, 2, 8}, {1, 5, 2, 8});
  call.RunBoth();
  for (const StridedTensor* gradient : {&call.dq, &call.dk, &call.dv}) ExpectNoNan(*gradient);
  const double gradient = call.dk.At({0, 3, 1, 4});
  EXPECT_NEAR(gradient, NumericGradient(call, call.k, {0, 3, 1, 4}), 1e-7);
}

// Dao-AILab/flash-attention#443, gradient side.
TEST(Faults, B144_GradientsOfSingleKeys) {
  BackwardCall call(Element::kF32, {25, 1, 32}, {3, 1, 32}, {3, 1, 32});
  IntTensor cu_q({0, 7, 11, 25});
  IntTensor cu_kv({0, 1, 2, 3});
  call.varlen.cu_seqlens_q = cu_q.abi();
  call.varlen.cu_seqlens_kv = cu_kv.abi();
  call.score.causal = HEED_CAUSAL_ON;
  call.RunBoth();
  // One key has weight 1 whatever its score: no gradient but V's, from the last query.
  ExpectAllZero(call.dq);
  ExpectAllZero(call.dk);
  const std::int64_t last_query[] = {6, 10, 24};
  ForEachIndex(call.dv.shape(), [&](const Indices& at) {
    EXPECT_EQ(call.dv.At(at), call.d_o.At({last_query[at[0]], 0, at[2]}));
  });
}

}  // namespace
}  // namespace heed::test
