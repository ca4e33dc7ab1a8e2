// Merging partial results.
#include <gtest/gtest.h>

#include <cmath>

#include "support/attention_call.h"

namespace heed::test {
namespace {

// Partial results [P,1,Sq,1,Dv] and [P,1,1,Sq], and their merge.
struct MergeCall {
  MergeCall(std::int64_t parts, std::int64_t q_len, std::int64_t head_dim_v)
      : o_partial(Element::kF32, {parts, 1, q_len, 1, head_dim_v}),
        lse_partial(Element::kF32, {parts, 1, 1, q_len}),
        o(Element::kF32, {1, q_len, 1, head_dim_v}),
        lse(Element::kF32, {1, 1, q_len}) {
    args.o_partial = o_partial.abi();
    args.lse_partial = lse_partial.abi();
    args.o = o.abi();
    args.lse = lse.abi();
  }

  void Run() { ASSERT_EQ(heed_combine(&args), HEED_OK) << heed_last_error(); }

  StridedTensor o_partial, lse_partial, o, lse;
  heed_combine_args_t args = HEED_COMBINE_ARGS_INIT;
};

// Dao-AILab/flash-attention#978 and flashinfer-ai/flashinfer#4452: an empty part changes nothing,
// whatever its o holds.
TEST(Faults, B082_B087_EmptyPartLeavesTheOtherUnchanged) {
  MergeCall merge(2, 1, 4);
  for (std::int64_t dim = 0; dim < 4; ++dim) {
    merge.o_partial.Set({0, 0, 0, 0, dim}, 0.1 * static_cast<double>(dim));
    merge.o_partial.Set({1, 0, 0, 0, dim}, std::nan(""));
  }
  merge.lse_partial.Set({0, 0, 0, 0}, -7.25);
  merge.lse_partial.Set({1, 0, 0, 0}, -HUGE_VAL);
  merge.Run();
  for (std::int64_t dim = 0; dim < 4; ++dim) {
    EXPECT_EQ(merge.o.At({0, 0, 0, dim}), merge.o_partial.At({0, 0, 0, 0, dim}));
  }
  EXPECT_EQ(merge.lse.At({0, 0, 0}), -7.25);
}

// flashinfer-ai/flashinfer#4051
TEST(Faults, B088_AllPartsEmpty) {
  for (const std::int64_t parts : {1, 2, 5}) {
    MergeCall merge(parts, 2, 3);
    merge.o_partial.Fill([](const Indices&) { return 0.0; });
    merge.lse_partial.Fill([](const Indices&) { return -HUGE_VAL; });
    merge.Run();
    ForEachIndex(merge.o.shape(), [&](const Indices& at) { EXPECT_EQ(merge.o.At(at), 0.0); });
    EXPECT_EQ(merge.lse.At({0, 0, 1}), -HUGE_VAL);
  }
}

// pegainfer-project/pegainfer#21 and Dao-AILab/flash-attention#1647: more parts than keys, and
// parts that do not divide them, equal one call over all keys.
TEST(Faults, B086_B136_AnyNumberOfParts) {
  for (const std::int64_t kv_len : {5, 257}) {
    for (const std::int64_t parts : {1, 2, 3, 7, 8, 16}) {
      AttentionCall whole(Element::kF32, {1, 2, 1, 16}, {1, kv_len, 1, 16}, {1, kv_len, 1, 16});
      whole.FillNormal(1);
      ASSERT_EQ(whole.Run(), HEED_OK);
      MergeCall merge(parts, 2, 16);
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t begin = std::min(kv_len, part * ((kv_len + parts - 1) / parts));
        const std::int64_t end = std::min(kv_len, (part + 1) * ((kv_len + parts - 1) / parts));
        AttentionCall some(Element::kF32, {1, 2, 1, 16}, {1, end - begin, 1, 16},
                           {1, end - begin, 1, 16});
        some.q.Fill([&](const Indices& at) { return whole.q.At(at); });
        some.k.Fill([&](const Indices& at) { return whole.k.At({0, at[1] + begin, 0, at[3]}); });
        some.v.Fill([&](const Indices& at) { return whole.v.At({0, at[1] + begin, 0, at[3]}); });
        ASSERT_EQ(some.Run(), HEED_OK);
        ForEachIndex(some.o.shape(), [&](const Indices& at) {
          merge.o_partial.Set({part, 0, at[1], 0, at[3]}, some.o.At(at));
        });
        for (std::int64_t row = 0; row < 2; ++row) {
          merge.lse_partial.Set({part, 0, 0, row}, some.lse.At({0, 0, row}));
        }
      }
      merge.Run();
      ForEachIndex(whole.o.shape(), [&](const Indices& at) {
        EXPECT_NEAR(merge.o.At(at), whole.o.At(at), 1e-5) << parts << " parts";
      });
      EXPECT_NEAR(merge.lse.At({0, 0, 1}), whole.lse.At({0, 0, 1}), 1e-5);
    }
  }
}

}  // namespace
}  // namespace heed::test
