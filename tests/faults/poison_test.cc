// What unused slots, workspaces and outputs hold must not matter.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/attention_call.h"
#include "support/guarded_buffer.h"

namespace heed::test {
namespace {

constexpr Poison kPoisons[] = {Poison::kNaN, Poison::kPositiveInfinity, Poison::kNegativeInfinity};

// Runs with zeros in the slots that `is_unused` names, then with each poison in K, in V and in
// both: the bits must not change.
void ExpectUnusedSlotsDoNotMatter(AttentionCall& call,
                                  const std::function<bool(const Indices&)>& is_unused) {
  const auto poison_unused = [&](StridedTensor& tensor, Poison poison) {
    ForEachIndex(tensor.shape(), [&](const Indices& at) {
      if (is_unused(at)) tensor.SetPoison(at, poison);
    });
  };
  const auto clear_unused = [&](StridedTensor& tensor) {
    ForEachIndex(tensor.shape(), [&](const Indices& at) {
      if (is_unused(at)) tensor.Set(at, 0.0);
    });
  };
  clear_unused(call.k);
  clear_unused(call.v);
  call.OnEveryKernel([&] {
    StridedTensor expected(call.o.element(), call.o.shape());
    expected.Fill([&](const Indices& at) { return call.o.At(at); });
    for (const Poison poison : kPoisons) {
      for (const int which : {1, 2, 3}) {
        if ((which & 1) != 0) poison_unused(call.k, poison);
        if ((which & 2) != 0) poison_unused(call.v, poison);
        ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
        ExpectSameValues(expected, call.o);
        clear_unused(call.k);
        clear_unused(call.v);
      }
    }
  });
}

// Dao-AILab/flash-attention#1745: a contiguous cache with slots past each length.
TEST(Faults, B072_SlotsPastTheLengthOfACache) {
  AttentionCall small(Element::kF32, {2, 1, 2, 16}, {2, 3, 1, 16}, {2, 3, 1, 16});
  small.FillNormal(1);
  IntTensor small_used({1, 3});
  small.varlen.seqused_kv = small_used.abi();
  ExpectUnusedSlotsDoNotMatter(small, [](const Indices& at) { return at[0] == 0 && at[1] >= 1; });

  AttentionCall large(Element::kF16, {4, 1, 2, 16}, {4, 128, 1, 16}, {4, 128, 1, 16});
  large.FillNormal(2);
  const std::int64_t lengths[] = {32, 64, 96, 48};
  IntTensor large_used({32, 64, 96, 48});
  large.varlen.seqused_kv = large_used.abi();
  ExpectUnusedSlotsDoNotMatter(large, [&](const Indices& at) { return at[1] >= lengths[at[0]]; });
}

// The same with pages: free pages and the tails of last pages.
TEST(Faults, B072_FreePagesAndPageTails) {
  AttentionCall call(Element::kF32, {2, 1, 2, 16}, {5, 16, 1, 16}, {5, 16, 1, 16});
  call.FillNormal(3);
  IntTensor used({20, 7});
  IntTensor table({2, 2}, {4, 1, 2, -1});
  call.varlen.seqused_kv = used.abi();
  call.paging.block_table = table.abi();
  call.args.paging = &call.paging;
  ExpectUnusedSlotsDoNotMatter(call, [](const Indices& at) {
    const std::int64_t tokens[] = {0, 4, 7, 0, 16};
    return at[1] >= tokens[at[0]];
  });
}

// deepbeepmeep/Wan2GP#1628 and pytorch/pytorch#101967: hiding is a select.
TEST(Faults, B075_B076_KeysThatNobodySees) {
  AttentionCall call(Element::kF32, {1, 2, 1, 4}, {1, 2, 1, 4}, {1, 2, 1, 4});
  call.FillNormal(4);
  StridedTensor mask(Element::kBool, {1, 1, 2, 2});
  mask.Fill([](const Indices& at) { return at[3] == 0 ? 1.0 : 0.0; });
  call.score.mask = mask.abi();
  ExpectUnusedSlotsDoNotMatter(call, [](const Indices& at) { return at[1] == 1; });
  call.OnEveryKernel([&] {
    for (std::int64_t dim = 0; dim < 4; ++dim) {
      EXPECT_NEAR(call.o.At({0, 1, 0, dim}), call.v.At({0, 0, 0, dim}), 1e-6);
    }
  });
}

// The boundary of the promise: K hidden from a row may hold anything although other rows see it.
TEST(Faults, B076_KeyHiddenFromSomeRowsOnly) {
  AttentionCall call(Element::kF32, {1, 8, 1, 4}, {1, 8, 1, 4}, {1, 8, 1, 4});
  call.FillNormal(5);
  call.score.causal = HEED_CAUSAL_ON;
  for (std::int64_t dim = 0; dim < 4; ++dim) call.k.SetPoison({0, 5, 0, dim}, Poison::kNaN);
  call.OnEveryKernel([&] {
    for (std::int64_t row = 0; row < 8; ++row) {
      EXPECT_EQ(std::isnan(call.o.At({0, row, 0, 0})), row >= 5) << row;
    }
  });
}

// A value that one tile sees and the next does not, both in one step of a kernel that multiplies
// several keys at a time: token i sees key i + 1 alone, and tiles of any size meet before token
// 432.
TEST(Faults, InfiniteValueOfANeighbouringTile) {
  constexpr std::int64_t kTokens = 480, kFirstToken = 432;
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    for (const std::int64_t bad_key : {kFirstToken, kFirstToken + 1}) {
      AttentionCall call(element, {1, kTokens, 1, 16}, {1, kTokens + 1, 1, 16},
                         {1, kTokens + 1, 1, 16});
      call.FillNormal(8);
      call.score.window_left = call.score.window_right = 0;
      call.exec.num_threads = 1;
      for (std::int64_t dim = 0; dim < 16; ++dim) {
        call.v.SetPoison({0, bad_key, 0, dim}, Poison::kPositiveInfinity);
      }
      const bool is_first_side = bad_key == kFirstToken + 1;
      call.OnEveryKernel([&] {
        for (std::int64_t row = is_first_side ? 0 : kFirstToken;
             row < (is_first_side ? kFirstToken : kTokens); ++row) {
          ASSERT_EQ(call.o.At({0, row, 0, 3}), call.v.At({0, row + 1, 0, 3})) << row;
        }
      });
    }
  }
}

void ExpectNanRow(const AttentionCall& call, std::int64_t row) {
  EXPECT_TRUE(std::isnan(call.lse.At({0, 0, row}))) << row;
  for (const double value : call.OutputRow({0, row, 0})) EXPECT_TRUE(std::isnan(value)) << row;
}

// A bias is arithmetic, so NaN + -inf is NaN; a mask drops what it hides, whatever score and bias.
TEST(Faults, NanScoreUnderAnInfiniteBias) {
  AttentionCall call(Element::kF32, {1, 8, 1, 4}, {1, 40, 1, 4}, {1, 40, 1, 4});
  StridedTensor bias(Element::kF32, {1, 1, 8, 40});
  StridedTensor mask(Element::kBool, {1, 1, 8, 40});
  call.score.bias = bias.abi();
  for (const bool has_mask : {false, true}) {
    SCOPED_TRACE(has_mask ? "with mask" : "without mask");
    call.FillNormal(9);
    bias.Fill([](const Indices&) { return 0.5; });
    mask.Fill([](const Indices& at) { return at[2] >= 5 && at[3] == 5 ? 0.0 : 1.0; });
    call.score.mask = has_mask ? mask.abi() : nullptr;
    // Finite scores: -inf hides, +inf and NaN make their row NaN unless the mask hides them.
    bias.Set({0, 0, 1, 5}, -HUGE_VAL);
    bias.Set({0, 0, 2, 5}, HUGE_VAL);
    bias.Set({0, 0, 3, 5}, std::nan(""));
    bias.Set({0, 0, 5, 5}, HUGE_VAL);
    bias.Set({0, 0, 6, 5}, std::nan(""));
    bias.Set({0, 0, 7, 5}, -HUGE_VAL);
    call.OnEveryKernel([&] {
      for (const std::int64_t row : {0, 1, 4}) EXPECT_FALSE(std::isnan(call.lse.At({0, 0, row})));
      for (const std::int64_t row : {2, 3}) ExpectNanRow(call, row);
      for (const std::int64_t row : {5, 6})
        EXPECT_EQ(std::isnan(call.lse.At({0, 0, row})), !has_mask);
      EXPECT_FALSE(std::isnan(call.lse.At({0, 0, 7})));
    });
    // NaN scores of key 5 for every row.
    call.k.SetPoison({0, 5, 0, 2}, Poison::kNaN);
    call.OnEveryKernel([&] {
      for (std::int64_t row = 0; row < 5; ++row) ExpectNanRow(call, row);
      for (std::int64_t row = 5; row < 8; ++row) {
        EXPECT_EQ(std::isnan(call.lse.At({0, 0, row})), !has_mask) << row;
        EXPECT_EQ(std::isnan(call.o.At({0, row, 0, 0})), !has_mask) << row;
      }
    });
  }
}

// Softmax comes before dropout: dropping the key of a NaN score, or every key, does not mend the
// row.
TEST(Faults, NanScoreOfADroppedKey) {
  AttentionCall call(Element::kF32, {1, 64, 1, 4}, {1, 1, 1, 4}, {1, 1, 1, 4});
  call.FillNormal(10);
  call.k.SetPoison({0, 0, 0, 0}, Poison::kNaN);
  call.score.dropout_p = 0.5;
  call.score.dropout_seed = 3;
  StridedTensor keep(Element::kU8, {1, 1, 64, 1});
  heed_dropout_mask_args_t mask_args = HEED_DROPOUT_MASK_ARGS_INIT;
  mask_args.mask = keep.abi();
  mask_args.dropout_p = 0.5;
  mask_args.dropout_seed = 3;
  ASSERT_EQ(heed_dropout_mask(&mask_args), HEED_OK) << heed_last_error();
  int num_dropped = 0;
  for (std::int64_t row = 0; row < 64; ++row) num_dropped += keep.At({0, 0, row, 0}) == 0.0 ? 1 : 0;
  ASSERT_GT(num_dropped, 10);
  ASSERT_LT(num_dropped, 54);
  call.OnEveryKernel([&] {
    for (std::int64_t row = 0; row < 64; ++row) ExpectNanRow(call, row);
  });
}

// Dao-AILab/flash-attention#1395, tile-ai/tilelang#2461: scratch left by others, one key past a
// tile.
TEST(Faults, B073_B079_WorkspaceFullOfNan) {
  for (const std::int64_t kv_len : {33, 65, 129}) {
    AttentionCall call(Element::kBF16, {1, 33, 2, 24}, {1, kv_len, 1, 24}, {1, kv_len, 1, 24});
    call.FillNormal(6);
    call.OnEveryKernel([&] {
      StridedTensor expected(call.o.element(), call.o.shape());
      expected.Fill([&](const Indices& at) { return call.o.At(at); });
      heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
      ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK);
      GuardedBuffer workspace(plan.workspace_bytes, Placement::kGuardBands);
      call.exec.workspace = workspace.data();
      call.exec.workspace_bytes = plan.workspace_bytes;
      ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
      ExpectSameValues(expected, call.o);
      call.exec.workspace = nullptr;
      call.exec.workspace_bytes = 0;
    });
  }
}

// huggingface/transformers#46765 and vllm-project/vllm#37442: empty sequences beside a live one.
TEST(Faults, B077_B078_EmptySequencesWriteZeros) {
  AttentionCall call(Element::kF32, {8, 1, 2, 16}, {8, 8, 1, 16}, {8, 8, 1, 16});
  call.FillNormal(7);
  IntTensor used({5, 0, 0, 0, 0, 0, 0, 0});
  call.varlen.seqused_kv = used.abi();
  call.OnEveryKernel([&] {
    ForEachIndex(call.o.shape(),
                 [&](const Indices& at) { EXPECT_EQ(call.o.At(at) == 0.0, at[0] > 0); });
    ForEachIndex(call.lse.shape(),
                 [&](const Indices& at) { EXPECT_EQ(call.lse.At(at) == -HUGE_VAL, at[0] > 0); });
  });
}

}  // namespace
}  // namespace heed::test
