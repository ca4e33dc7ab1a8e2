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
