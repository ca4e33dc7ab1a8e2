// Rows with no visible key: o = 0 and lse = -inf, wherever they stand.
#include <gtest/gtest.h>

#include <cmath>

#include "support/attention_call.h"

namespace heed::test {
namespace {

constexpr double kMinusInfinity = -HUGE_VAL;

// pytorch/pytorch#103749
TEST(Faults, B001_BoolMaskRowAllFalse) {
  AttentionCall call(Element::kF32, {1, 6, 2, 8}, {1, 10, 2, 8}, {1, 10, 2, 8});
  call.FillNormal(1);
  StridedTensor mask(Element::kBool, {1, 1, 6, 10});
  mask.Fill([](const Indices& at) { return at[2] < 5 && at[3] <= at[2] ? 1.0 : 0.0; });
  call.score.mask = mask.abi();
  call.OnEveryKernel([&] {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (const double value : call.OutputRow({0, 5, head})) EXPECT_EQ(value, 0.0);
      EXPECT_EQ(call.lse.At({0, head, 5}), kMinusInfinity);
      EXPECT_TRUE(std::isfinite(call.lse.At({0, head, 4})));
    }
  });
}

// ikawrakow/ik_llama.cpp#2344: an additive mask of -inf empties rows at the start, in the middle
// and at the end of a tile alike.
TEST(Faults, B003_AdditiveMaskEmptiesRowsAnywhere) {
  for (const std::int64_t head_dim : {64, 512}) {
    AttentionCall call(Element::kF32, {1, 64, 1, head_dim}, {1, 512, 1, head_dim},
                       {1, 512, 1, head_dim});
    call.FillNormal(2);
    const auto is_empty = [](std::int64_t row) {
      return row <= 13 || (row >= 25 && row <= 38) || row >= 50;
    };
    StridedTensor bias(Element::kF32, {1, 1, 64, 512});
    bias.Fill([&](const Indices& at) {
      return is_empty(at[2]) || at[3] > at[2] + 448 ? kMinusInfinity : 0.0;
    });
    call.score.bias = bias.abi();
    call.OnEveryKernel([&] {
      for (std::int64_t row = 0; row < 64; ++row) {
        EXPECT_EQ(call.lse.At({0, 0, row}) == kMinusInfinity, is_empty(row)) << row;
        for (const double value : call.OutputRow({0, row, 0})) {
          EXPECT_EQ(value == 0.0, is_empty(row)) << row;
        }
      }
    });
  }
}

// ml-explore/mlx#2608
TEST(Faults, B004_EveryKernelAgreesOnAnEmptyBatch) {
  AttentionCall call(Element::kF32, {2, 4, 2, 32}, {2, 8, 2, 32}, {2, 8, 2, 32});
  call.FillNormal(3);
  StridedTensor mask(Element::kBool, {2, 1, 1, 8});
  mask.Fill([](const Indices& at) { return at[0] == 0 ? 1.0 : 0.0; });
  call.score.mask = mask.abi();
  call.OnEveryKernel([&] {
    ForEachIndex(call.o.shape(),
                 [&](const Indices& at) { EXPECT_EQ(call.o.At(at) == 0.0, at[0] == 1); });
    ForEachIndex(call.lse.shape(), [&](const Indices& at) {
      EXPECT_EQ(call.lse.At(at) == kMinusInfinity, at[0] == 1);
    });
  });
}

// pytorch/pytorch#124877: padding on both sides as an outer product.
TEST(Faults, B007_OuterProductPaddingMask) {
  for (const Element element : {Element::kF32, Element::kBF16}) {
    AttentionCall call(element, {2, 8, 4, 128}, {2, 16, 4, 128}, {2, 16, 4, 128});
    call.FillNormal(4);
    StridedTensor mask(Element::kBool, {2, 1, 8, 16});
    mask.Fill(
        [](const Indices& at) { return at[2] < 6 - at[0] && at[3] < 11 + at[0] ? 1.0 : 0.0; });
    call.score.mask = mask.abi();
    call.OnEveryKernel([&] {
      ForEachIndex(call.o.shape(), [&](const Indices& at) {
        const bool is_padding = at[1] >= 6 - at[0];
        EXPECT_EQ(call.o.At(at) == 0.0, is_padding) << ToString(at);
        EXPECT_TRUE(std::isfinite(call.o.At(at)));
      });
    });
  }
  ExpectCasePasses("fwd:b2:hq4:hkv4:sq8:skv16:d128:dv128:f32:mask-b1qk-bool:s7");
  ExpectCasePasses("fwd:b2:hq4:hkv4:sq8:skv16:d128:dv128:bf16:mask-b1qk-bool:s7");
}

// flashinfer-ai/flashinfer#4452: causal with more queries than keys, paged.
TEST(Faults, B082_LseOfEmptyRowsIsExactlyMinusInfinity) {
  AttentionCall call(Element::kF32, {1, 8, 1, 16}, {3, 2, 1, 16}, {3, 2, 1, 16});
  call.FillNormal(5);
  call.score.causal = HEED_CAUSAL_ON;
  IntTensor used({4});
  IntTensor table({1, 2}, {2, 0});
  call.varlen.seqused_kv = used.abi();
  call.paging.block_table = table.abi();
  call.args.paging = &call.paging;
  call.OnEveryKernel([&] {
    for (std::int64_t row = 0; row < 8; ++row) {
      EXPECT_EQ(call.lse.At({0, 0, row}) == kMinusInfinity, row < 4) << row;
      for (const double value : call.OutputRow({0, row, 0})) EXPECT_EQ(value == 0.0, row < 4);
    }
  });
}

// pytorch/pytorch#127055: a band of ten keys, far below the diagonal of early blocks.
TEST(Faults, B084_BandMaskKeepsAllRowsRight) {
  AttentionCall call(Element::kF32, {1, 640, 1, 4}, {1, 640, 1, 4}, {1, 640, 1, 4});
  for (StridedTensor* tensor : {&call.q, &call.k, &call.v}) {
    tensor->Fill([](const Indices&) { return 1.0; });
  }
  StridedTensor bias(Element::kF32, {1, 1, 640, 640});
  bias.Fill([](const Indices& at) {
    return at[3] <= at[2] && at[3] > at[2] - 10 ? 0.0 : kMinusInfinity;
  });
  call.score.bias = bias.abi();
  call.OnEveryKernel([&] {
    ForEachIndex(call.o.shape(), [&](const Indices& at) { EXPECT_NEAR(call.o.At(at), 1.0, 1e-6); });
  });
}

// buddy-compiler/buddy-mlir#837: later blocks hold nothing visible.
TEST(Faults, B085_HiddenBlocksDisturbNothing) {
  AttentionCall call(Element::kF32, {1, 3, 1, 8}, {1, 640, 1, 8}, {1, 640, 1, 8});
  call.FillNormal(6);
  AttentionCall five_keys(Element::kF32, {1, 3, 1, 8}, {1, 5, 1, 8}, {1, 5, 1, 8});
  five_keys.q.Fill([&](const Indices& at) { return call.q.At(at); });
  five_keys.k.Fill([&](const Indices& at) { return call.k.At(at); });
  five_keys.v.Fill([&](const Indices& at) { return call.v.At(at); });
  StridedTensor bias(Element::kF32, {1, 1, 1, 640});
  bias.Fill([](const Indices& at) { return at[3] < 5 ? 0.0 : kMinusInfinity; });
  call.score.bias = bias.abi();
  ASSERT_EQ(five_keys.Run(), HEED_OK);
  call.OnEveryKernel([&] {
    ForEachIndex(call.o.shape(),
                 [&](const Indices& at) { EXPECT_NEAR(call.o.At(at), five_keys.o.At(at), 1e-6); });
  });
}

// Dao-AILab/flash-attention#2082: scores far below zero are no reason to call a row empty.
TEST(Faults, B083_VeryNegativeScoresAreNotAnEmptyRow) {
  AttentionCall call(Element::kF32, {1, 88, 7, 64}, {1, 448, 1, 64}, {1, 448, 1, 64});
  call.FillNormal(7);
  call.score.causal = HEED_CAUSAL_ON;
  // q.k = -5 * 5 * 64 / sqrt(64) = -200 for row 2 and every key.
  call.k.Fill([](const Indices&) { return -5.0; });
  for (std::int64_t head = 0; head < 7; ++head) {
    for (std::int64_t dim = 0; dim < 64; ++dim) call.q.Set({0, 2, head, dim}, 5.0);
  }
  call.OnEveryKernel([&] {
    for (std::int64_t dim = 0; dim < 64; ++dim) {
      double mean = 0.0;
      for (std::int64_t key = 0; key < 363; ++key) mean += call.v.At({0, key, 0, dim}) / 363;
      EXPECT_NEAR(call.o.At({0, 2, 3, dim}), mean, 1e-5);
    }
    EXPECT_NEAR(call.lse.At({0, 3, 2}), -200.0 + std::log(363.0), 1e-3);
  });
}

}  // namespace
}  // namespace heed::test
