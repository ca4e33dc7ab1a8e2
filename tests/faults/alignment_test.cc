// Causal alignment and sliding windows.
#include <gtest/gtest.h>

#include <cmath>

#include "support/attention_call.h"

namespace heed::test {
namespace {

// K = 0, so that every visible key weighs the same; V one-hot, so that o shows which they are.
void ShowVisibleKeys(AttentionCall& call) {
  call.q.Fill([](const Indices&) { return 1.0; });
  call.k.Fill([](const Indices&) { return 0.0; });
  call.v.Fill([](const Indices& at) { return at[1] == at[3] ? 1.0 : 0.0; });
}

void ExpectRowSees(const AttentionCall& call, std::int64_t row, std::int64_t begin,
                   std::int64_t end) {
  for (std::int64_t key = 0; key < call.v.dim(1); ++key) {
    const double expected =
        key >= begin && key < end ? 1.0 / static_cast<double>(end - begin) : 0.0;
    EXPECT_NEAR(call.o.At({0, row, 0, key}), expected, 1e-6) << "row " << row << " key " << key;
  }
}

// Dao-AILab/flash-attention#1778
TEST(Faults, B009_CausalSqGreaterThanSkv) {
  AttentionCall call(Element::kF32, {1, 2048, 1, 64}, {1, 1024, 1, 64}, {1, 1024, 1, 64});
  call.FillNormal(1);
  call.score.causal = HEED_CAUSAL_ON;
  call.OnEveryKernel([&] {
    for (std::int64_t row = 0; row < 2048; ++row) {
      EXPECT_EQ(call.o.At({0, row, 0, 0}) == 0.0, row < 1024) << row;
      EXPECT_EQ(call.lse.At({0, 0, row}) == -HUGE_VAL, row < 1024) << row;
    }
    // Row 1024 sees key 0 only.
    EXPECT_FLOAT_EQ(call.o.At({0, 1024, 0, 7}), call.v.At({0, 0, 0, 7}));
  });
  call.score.alignment = HEED_ALIGN_TOP_LEFT;
  call.OnEveryKernel([&] {
    EXPECT_FLOAT_EQ(call.o.At({0, 0, 0, 7}), call.v.At({0, 0, 0, 7}));
    EXPECT_TRUE(std::isfinite(call.lse.At({0, 0, 2047})));
  });
}

// Dao-AILab/flash-attention#282
TEST(Faults, B010_OneQueryCausalSeesTheWholeCache) {
  AttentionCall call(Element::kF32, {1, 1, 1, 4}, {1, 5, 1, 4}, {1, 5, 1, 4});
  call.FillNormal(2);
  call.OnEveryKernel([&] {
    const std::vector<double> without_causal = call.OutputRow({0, 0, 0});
    call.score.causal = HEED_CAUSAL_ON;
    ASSERT_EQ(call.Run(), HEED_OK);
    EXPECT_EQ(call.OutputRow({0, 0, 0}), without_causal);
    call.score.causal = HEED_CAUSAL_OFF;
  });
}

// NVIDIA/cutlass#2336: right values from counting, not from mask code.
TEST(Faults, B011_RowsSeeTheRightNumberOfKeys) {
  AttentionCall call(Element::kF32, {1, 3, 1, 128}, {1, 128, 1, 128}, {1, 128, 1, 128});
  ShowVisibleKeys(call);
  call.score.causal = HEED_CAUSAL_ON;
  call.OnEveryKernel([&] {
    for (std::int64_t row = 0; row < 3; ++row) ExpectRowSees(call, row, 0, 126 + row);
  });
}

// gittensor-ai-lab/sparkinfer#3
TEST(Faults, B013_ChunkedPrefillEqualsOneCall) {
  AttentionCall whole(Element::kF32, {1, 96, 2, 32}, {1, 96, 1, 32}, {1, 96, 1, 32});
  whole.FillNormal(3);
  whole.score.causal = HEED_CAUSAL_ON;
  ASSERT_EQ(whole.Run(), HEED_OK);
  for (const std::int64_t chunk_rows : {1, 7, 32, 64}) {
    for (std::int64_t begin = 0; begin < 96; begin += chunk_rows) {
      const std::int64_t end = std::min<std::int64_t>(begin + chunk_rows, 96);
      AttentionCall chunk(Element::kF32, {1, end - begin, 2, 32}, {1, end, 1, 32}, {1, end, 1, 32});
      chunk.q.Fill([&](Indices at) { return whole.q.At({0, at[1] + begin, at[2], at[3]}); });
      chunk.k.Fill([&](const Indices& at) { return whole.k.At(at); });
      chunk.v.Fill([&](const Indices& at) { return whole.v.At(at); });
      chunk.score.causal = HEED_CAUSAL_ON;
      chunk.OnEveryKernel([&] {
        ForEachIndex(chunk.o.shape(), [&](const Indices& at) {
          EXPECT_NEAR(chunk.o.At(at), whole.o.At({0, at[1] + begin, at[2], at[3]}), 1e-5);
        });
      });
    }
  }
}

// huggingface/transformers#39408: (3, 0) means the four newest keys.
TEST(Faults, B105_WindowLeftIsInclusive) {
  AttentionCall call(Element::kF32, {1, 8, 1, 8}, {1, 8, 1, 8}, {1, 8, 1, 8});
  ShowVisibleKeys(call);
  call.score.window_left = 3;
  call.score.window_right = 0;
  call.OnEveryKernel([&] {
    for (std::int64_t row = 0; row < 8; ++row) {
      ExpectRowSees(call, row, std::max<std::int64_t>(row - 3, 0), row + 1);
    }
  });
}

// Dao-AILab/flash-attention#1133: four ways to say causal.
TEST(Faults, B106_WindowsThatEqualCausalGiveItsBits) {
  AttentionCall call(Element::kF32, {1, 200, 1, 16}, {1, 200, 1, 16}, {1, 200, 1, 16});
  call.FillNormal(4);
  call.score.window_right = 0;
  call.OnEveryKernel([&] {
    StridedTensor expected(Element::kF32, call.o.shape());
    expected.Fill([&](const Indices& at) { return call.o.At(at); });
    for (const std::int64_t left : {200, 199, 5000}) {
      call.score.window_left = left;
      ASSERT_EQ(call.Run(), HEED_OK);
      ExpectSameValues(expected, call.o);
    }
    call.score.window_left = -1;
    call.score.window_right = -1;
    call.score.causal = HEED_CAUSAL_ON;
    ASSERT_EQ(call.Run(), HEED_OK);
    ExpectSameValues(expected, call.o);
    call.score.window_right = 0;
    call.score.causal = HEED_CAUSAL_OFF;
  });
}

// thu-ml/DiTFastAttn#7: only -1 means unlimited.
TEST(Faults, B107_OtherNegativeWindowsAreRefused) {
  AttentionCall call(Element::kF32, {1, 8, 1, 8}, {1, 8, 1, 8}, {1, 8, 1, 8});
  call.FillNormal(5);
  call.score.window_left = -128;
  call.score.window_right = 0;
  call.ExpectRefused(HEED_INVALID_ARGUMENT, {"window_left", "-128"});
  call.score.window_left = 2;
  call.score.window_right = -5;
  call.ExpectRefused(HEED_INVALID_ARGUMENT, {"window_right", "-5"});
}

// ggml-org/llama.cpp#22137: skipping blocks of keys saves time only. A window written out as a
// mask hides the same keys with nothing skipped.
TEST(Faults, B205_SkippedBlocksChangeNothing) {
  AttentionCall call(Element::kF32, {1, 150, 1, 16}, {1, 700, 1, 16}, {1, 700, 1, 16});
  call.FillNormal(6);
  StridedTensor mask(Element::kBool, {1, 1, 150, 700});
  mask.Fill([](const Indices& at) {
    const std::int64_t position = at[2] + 550;
    return at[3] <= position && at[3] >= position - 200 ? 1.0 : 0.0;
  });
  call.OnEveryKernel([&] {
    call.score.mask = mask.abi();
    ASSERT_EQ(call.Run(), HEED_OK);
    StridedTensor expected(Element::kF32, call.o.shape());
    expected.Fill([&](const Indices& at) { return call.o.At(at); });
    call.score.mask = nullptr;
    call.score.causal = HEED_CAUSAL_ON;
    call.score.window_left = 200;
    ASSERT_EQ(call.Run(), HEED_OK);
    ForEachIndex(call.o.shape(),
                 [&](const Indices& at) { EXPECT_NEAR(call.o.At(at), expected.At(at), 1e-6); });
    call.score.causal = HEED_CAUSAL_OFF;
    call.score.window_left = -1;
  });
}

// Dao-AILab/flash-attention#540
TEST(Faults, B116_AlibiFollowsTheShiftedDiagonal) {
  AttentionCall call(Element::kF32, {1, 57, 40, 8}, {1, 133, 40, 8}, {1, 133, 40, 1});
  StridedTensor slopes(Element::kF32, {40});
  slopes.Fill(
      [](const Indices& at) { return std::exp2(-8.0 * static_cast<double>(at[0] + 1) / 40); });
  call.score.alibi_slopes = slopes.abi();
  call.q.Fill([](const Indices&) { return 0.0; });
  call.k.Fill([](const Indices&) { return 0.0; });
  call.v.Fill([](const Indices& at) { return static_cast<double>(at[1]); });
  for (const heed_causal_t causal : {HEED_CAUSAL_OFF, HEED_CAUSAL_ON}) {
    call.score.causal = causal;
    call.OnEveryKernel([&] {
      for (std::int64_t head = 0; head < 40; head += 3) {
        for (std::int64_t row = 0; row < 57; row += 7) {
          const std::int64_t position = row + 133 - 57;
          double sum = 0.0;
          double weighted = 0.0;
          for (std::int64_t key = 0; key < (causal == HEED_CAUSAL_ON ? position + 1 : 133); ++key) {
            const double weight =
                std::exp(-slopes.At({head}) * static_cast<double>(std::abs(position - key)));
            sum += weight;
            weighted += weight * static_cast<double>(key);
          }
          EXPECT_NEAR(call.o.At({0, row, head, 0}), weighted / sum, 1e-3);
        }
      }
    });
  }
}

// ggml-org/llama.cpp#20031: 48 heads are no power of two; each has its own slope.
TEST(Faults, B117_AlibiSlopePerHeadWithGroups) {
  ExpectCasePasses("fwd:b1:hq48:hkv16:sq5:skv19:d16:dv16:f32:alibi-h:fenced:s1");
  ExpectCasePasses("fwd:b2:hq48:hkv6:sq5:skv19:d16:dv16:bf16:causal:alibi-bh:s2");
}

}  // namespace
}  // namespace heed::test
