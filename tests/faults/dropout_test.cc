// Dropout: one mask, a pure function of (seed, offset, b, h, i, j).
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "faults/backward_call.h"

namespace heed::test {
namespace {

// The mask that the library documents, uint8 [B,H,Sq,Skv].
std::unique_ptr<StridedTensor> DocumentedMask(const Indices& shape,
                                              const heed_score_args_t& score) {
  auto mask = std::make_unique<StridedTensor>(Element::kU8, shape);
  heed_dropout_mask_args_t args = HEED_DROPOUT_MASK_ARGS_INIT;
  args.mask = mask->abi();
  args.dropout_p = score.dropout_p;
  args.dropout_seed = score.dropout_seed;
  args.dropout_offset = score.dropout_offset;
  EXPECT_EQ(heed_dropout_mask(&args), HEED_OK) << heed_last_error();
  return mask;
}

// Dao-AILab/flash-attention#612: forward and backward, groups and causal masks share one mask.
// K = 0 and V = I show the mask in o; d_o = I shows it in dv.
TEST(Faults, B184_ForwardAndBackwardUseTheDocumentedMask) {
  constexpr std::int64_t kLength = 130;
  BackwardCall call(Element::kF32, {2, kLength, 2, 8}, {2, kLength, 1, 8},
                    {2, kLength, 1, kLength});
  call.q.Fill([](const Indices&) { return 1.0; });
  call.k.Fill([](const Indices&) { return 0.0; });
  call.v.Fill([](const Indices& at) { return at[1] == at[3] ? 1.0 : 0.0; });
  call.score.dropout_p = 0.3;
  call.score.dropout_seed = 1234567890123u;
  call.score.dropout_offset = (std::uint64_t{1} << 40) + 5;
  const auto mask = DocumentedMask({2, 2, kLength, kLength}, call.score);
  for (const heed_causal_t causal : {HEED_CAUSAL_OFF, HEED_CAUSAL_ON}) {
    call.score.causal = causal;
    call.OnEveryKernel([&] {
      ForEachIndex(mask->shape(), [&](const Indices& at) {
        const bool is_visible = causal == HEED_CAUSAL_OFF || at[3] <= at[2];
        const bool is_kept = is_visible && mask->At(at) != 0.0;
        ASSERT_EQ(call.o.At({at[0], at[2], at[1], at[3]}) != 0.0, is_kept) << ToString(at);
      });
    });
  }
  call.exec.backend = HEED_BACKEND_REFERENCE;
  call.score.causal = HEED_CAUSAL_OFF;
  call.d_o.Fill([](const Indices& at) { return at[2] == 0 && at[1] == at[3] ? 1.0 : 0.0; });
  call.RunBoth();
  ForEachIndex({2, 1, kLength, kLength}, [&](const Indices& at) {
    ASSERT_EQ(call.dv.At({at[0], at[3], 0, at[2]}) != 0.0, mask->At(at) != 0.0) << ToString(at);
  });
}

// The same element of the mask, whatever the batch, the lengths or the packing.
TEST(Faults, B184_MaskDoesNotDependOnLengthsOrPacking) {
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  score.dropout_p = 0.5;
  score.dropout_seed = 7;
  const auto small = DocumentedMask({1, 3, 5, 9}, score);
  const auto large = DocumentedMask({1, 3, 37, 61}, score);
  ForEachIndex(small->shape(), [&](const Indices& at) { EXPECT_EQ(small->At(at), large->At(at)); });
  ExpectCasePasses("fwd:b3:hq4:hkv2:sq29:skv61:d16:dv16:f32:drop0.25:varlen-q:varlen-kv:s3");
}

// xlite-dev/ffpa-attn#166: another offset gives another mask, the same one repeats it.
TEST(Faults, B186_OffsetsNameMasks) {
  AttentionCall call(Element::kF32, {1, 16, 1, 8}, {1, 64, 1, 8}, {1, 64, 1, 8});
  call.FillNormal(1);
  call.score.dropout_p = 0.5;
  call.OnEveryKernel([&] {
    const std::vector<double> first = call.OutputRow({0, 3, 0});
    call.score.dropout_offset = 1;
    ASSERT_EQ(call.Run(), HEED_OK);
    EXPECT_NE(call.OutputRow({0, 3, 0}), first);
    call.score.dropout_offset = 0;
    ASSERT_EQ(call.Run(), HEED_OK);
    EXPECT_EQ(call.OutputRow({0, 3, 0}), first);
  });
}

// pytorch/pytorch#99905: seed and offset from memory, read when the kernel runs.
TEST(Faults, B179_B180_SeedAndOffsetFromMemory) {
  AttentionCall call(Element::kF32, {1, 16, 1, 8}, {1, 64, 1, 8}, {1, 64, 1, 8});
  call.FillNormal(2);
  call.score.dropout_p = 0.5;
  std::uint64_t words[2] = {42, 3};
  std::int64_t shape[1] = {2};
  heed_tensor_t rng = {words, {HEED_DEVICE_CPU, 0}, 1, {HEED_DTYPE_UINT, 64, 1}, shape, nullptr, 0};
  call.OnEveryKernel([&] {
    call.score.dropout_seed = 42;
    call.score.dropout_offset = 3;
    ASSERT_EQ(call.Run(), HEED_OK);
    const std::vector<double> from_fields = call.OutputRow({0, 3, 0});
    call.score.dropout_seed = call.score.dropout_offset = 0;
    call.score.dropout_rng = &rng;
    ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
    EXPECT_EQ(call.OutputRow({0, 3, 0}), from_fields);
    words[1] = 4;
    ASSERT_EQ(call.Run(), HEED_OK);
    EXPECT_NE(call.OutputRow({0, 3, 0}), from_fields);
    words[1] = 3;
    call.score.dropout_rng = nullptr;
  });
}

// pytorch/pytorch#124464: the call applies what it is asked for; p = 0 is no dropout at all.
TEST(Faults, B182_ProbabilityIsTakenAtItsWord) {
  AttentionCall call(Element::kF32, {1, 4, 1, 8}, {1, 64, 1, 8}, {1, 64, 1, 8});
  call.FillNormal(3);
  call.OnEveryKernel([&] {
    const std::vector<double> plain = call.OutputRow({0, 1, 0});
    call.score.dropout_seed = 5;
    ASSERT_EQ(call.Run(), HEED_OK);
    EXPECT_EQ(call.OutputRow({0, 1, 0}), plain);
    call.score.dropout_p = 0.1;
    ASSERT_EQ(call.Run(), HEED_OK);
    EXPECT_NE(call.OutputRow({0, 1, 0}), plain);
    call.score.dropout_p = 0.0;
  });
  for (const double bad : {1.0, -0.1, 2.0, std::nan("")}) {
    call.score.dropout_p = bad;
    call.ExpectRefused(HEED_INVALID_ARGUMENT, {"dropout_p"});
  }
}

}  // namespace
}  // namespace heed::test
