// Zero lengths, packed sequences and used lengths.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support/attention_call.h"

namespace heed::test {
namespace {

// Sequence [q_begin, q_end) x [kv_begin, kv_end) of a packed call, run alone and dense.
std::unique_ptr<AttentionCall> RunAlone(const AttentionCall& packed, std::int64_t q_begin,
                                        std::int64_t q_end, std::int64_t kv_begin,
                                        std::int64_t kv_end) {
  auto alone = std::make_unique<AttentionCall>(
      packed.q.element(), Indices{1, q_end - q_begin, packed.q.dim(1), packed.q.dim(2)},
      Indices{1, kv_end - kv_begin, packed.k.dim(1), packed.k.dim(2)},
      Indices{1, kv_end - kv_begin, packed.v.dim(1), packed.v.dim(2)});
  alone->q.Fill([&](const Indices& at) { return packed.q.At({q_begin + at[1], at[2], at[3]}); });
  alone->k.Fill([&](const Indices& at) { return packed.k.At({kv_begin + at[1], at[2], at[3]}); });
  alone->v.Fill([&](const Indices& at) { return packed.v.At({kv_begin + at[1], at[2], at[3]}); });
  alone->score = packed.score;
  EXPECT_EQ(alone->Run(), HEED_OK) << heed_last_error();
  return alone;
}

void ExpectRowsNear(const AttentionCall& packed, std::int64_t q_begin, const AttentionCall& alone,
                    double tolerance) {
  ForEachIndex(alone.o.shape(), [&](const Indices& at) {
    EXPECT_NEAR(packed.o.At({q_begin + at[1], at[2], at[3]}), alone.o.At(at), tolerance);
  });
}

// Dao-AILab/flash-attention#2470
TEST(Faults, B015_NoKeysGiveZeros) {
  AttentionCall call(Element::kF32, {2, 4, 16, 64}, {2, 0, 16, 64}, {2, 0, 16, 64});
  call.FillNormal(1);
  for (const heed_causal_t causal : {HEED_CAUSAL_OFF, HEED_CAUSAL_ON}) {
    call.score.causal = causal;
    call.OnEveryKernel([&] {
      ForEachIndex(call.o.shape(), [&](const Indices& at) { EXPECT_EQ(call.o.At(at), 0.0); });
      ForEachIndex(call.lse.shape(),
                   [&](const Indices& at) { EXPECT_EQ(call.lse.At(at), -HUGE_VAL); });
    });
  }
}

// Dao-AILab/flash-attention#1713
TEST(Faults, B017_SequenceWithKeysButNoQueries) {
  AttentionCall call(Element::kF32, {300, 2, 16}, {300, 2, 16}, {300, 2, 16});
  call.FillNormal(2);
  IntTensor cu_q({0, 150, 150, 300});
  IntTensor cu_kv({0, 100, 200, 300});
  call.varlen.cu_seqlens_q = cu_q.abi();
  call.varlen.cu_seqlens_kv = cu_kv.abi();
  const auto first = RunAlone(call, 0, 150, 0, 100);
  const auto last = RunAlone(call, 150, 300, 200, 300);
  call.OnEveryKernel([&] {
    ExpectRowsNear(call, 0, *first, 1e-5);
    ExpectRowsNear(call, 150, *last, 1e-5);
  });
}

// Dao-AILab/flash-attention#1537
TEST(Faults, B019_DecodeStepWithAnEmptySequence) {
  AttentionCall call(Element::kF32, {2, 9, 64}, {8, 3, 64}, {8, 3, 64});
  call.FillNormal(3);
  IntTensor cu_q({0, 1, 1, 2});
  IntTensor cu_kv({0, 3, 3, 8});
  call.varlen.cu_seqlens_q = cu_q.abi();
  call.varlen.cu_seqlens_kv = cu_kv.abi();
  call.varlen.max_seqlen_q = 1;
  call.score.causal = HEED_CAUSAL_ON;
  const auto first = RunAlone(call, 0, 1, 0, 3);
  const auto last = RunAlone(call, 1, 2, 3, 8);
  call.OnEveryKernel([&] {
    ExpectRowsNear(call, 0, *first, 1e-5);
    ExpectRowsNear(call, 1, *last, 1e-5);
  });
}

// Dao-AILab/flash-attention#1619
TEST(Faults, B020_FewerTokensThanSequences) {
  AttentionCall call(Element::kBF16, {1, 21, 120}, {1, 7, 120}, {1, 7, 120});
  call.FillNormal(4);
  IntTensor cu({0, 0, 0, 0, 1});
  call.varlen.cu_seqlens_q = cu.abi();
  call.varlen.cu_seqlens_kv = cu.abi();
  call.OnEveryKernel([&] {
    ForEachIndex(call.o.shape(), [&](const Indices& at) {
      EXPECT_EQ(call.o.At(at), call.v.At({0, at[1] / 3, at[2]}));
    });
  });
}

// verl-project/verl#1270
TEST(Faults, B024_EmptyBatch) {
  AttentionCall call(Element::kF32, {0, 4, 8}, {0, 2, 8}, {0, 2, 8});
  IntTensor cu({0});
  call.varlen.cu_seqlens_q = cu.abi();
  call.varlen.cu_seqlens_kv = cu.abi();
  call.OnEveryKernel([] {});
}

// Dao-AILab/flash-attention#2880
TEST(Faults, B031_OffsetsOfASliceOfAPacking) {
  AttentionCall call(Element::kF32, {60, 2, 16}, {60, 2, 16}, {60, 2, 16});
  call.FillNormal(5);
  IntTensor cu({10, 25, 60});
  call.varlen.cu_seqlens_q = cu.abi();
  call.varlen.cu_seqlens_kv = cu.abi();
  call.score.causal = HEED_CAUSAL_ON;
  const auto first = RunAlone(call, 10, 25, 10, 25);
  const auto second = RunAlone(call, 25, 60, 25, 60);
  call.OnEveryKernel([&] {
    ExpectRowsNear(call, 10, *first, 1e-5);
    ExpectRowsNear(call, 25, *second, 1e-5);
    const auto in_sequences = [](const Indices& at) { return at[0] >= 10; };
    EXPECT_EQ(call.o.DescribeStrayWrite(in_sequences), "");
  });
}

// NVIDIA/TransformerEngine#3331: padded slots [0,12,20,28] hold 9, 8 and 8 tokens.
TEST(Faults, B032_OnlyUsedRowsTakePart) {
  AttentionCall call(Element::kF32, {28, 2, 16}, {28, 2, 16}, {28, 2, 16});
  call.FillNormal(6);
  IntTensor cu({0, 12, 20, 28});
  IntTensor used({9, 8, 8});
  call.varlen.cu_seqlens_q = cu.abi();
  call.varlen.cu_seqlens_kv = cu.abi();
  call.varlen.seqused_q = used.abi();
  call.varlen.seqused_kv = used.abi();
  const auto first = RunAlone(call, 0, 9, 0, 9);
  for (StridedTensor* tensor : {&call.q, &call.k, &call.v}) {
    ForEachIndex({3, 2, 16}, [&](const Indices& at) {
      tensor->SetPoison({9 + at[0], at[1], at[2]}, Poison::kNaN);
    });
  }
  call.OnEveryKernel([&] {
    ExpectRowsNear(call, 0, *first, 1e-5);
    for (std::int64_t row = 9; row < 12; ++row) {
      for (const double value : call.OutputRow({row, 1})) EXPECT_EQ(value, 0.0);
      EXPECT_EQ(call.lse.At({1, row}), -HUGE_VAL);
    }
  });
}

// huggingface/transformers#47170: with the longest length left out it is derived, and packed
// samples still do not see one another.
TEST(Faults, B034_MissingMaxSeqlenIsDerived) {
  AttentionCall call(Element::kF32, {16, 1, 8}, {16, 1, 8}, {16, 1, 1});
  call.FillNormal(7);
  IntTensor cu({0, 8, 16});
  call.varlen.cu_seqlens_q = cu.abi();
  call.varlen.cu_seqlens_kv = cu.abi();
  call.v.Fill([](const Indices& at) { return at[0] < 8 ? 1000.0 : 1.0; });
  for (const std::int64_t max_seqlen : {0, 8}) {
    call.varlen.max_seqlen_q = call.varlen.max_seqlen_kv = max_seqlen;
    call.OnEveryKernel([&] {
      for (std::int64_t row = 8; row < 16; ++row) EXPECT_NEAR(call.o.At({row, 0, 0}), 1.0, 1e-6);
    });
  }
  call.varlen.max_seqlen_q = 7;
  call.ExpectRefused(HEED_INVALID_ARGUMENT, {"max_seqlen_q"});
}

// AI-Hypercomputer/maxtext#4476: segments of one row, as a mask.
TEST(Faults, B035_SegmentsDoNotSeeEachOther) {
  AttentionCall call(Element::kF32, {1, 16, 1, 8}, {1, 16, 1, 8}, {1, 16, 1, 1});
  call.FillNormal(8);
  call.v.Fill([](const Indices& at) { return at[1] < 8 ? 1000.0 : 1.0; });
  StridedTensor mask(Element::kU8, {1, 1, 16, 16});
  mask.Fill([](const Indices& at) { return at[2] / 8 == at[3] / 8 ? 1.0 : 0.0; });
  call.score.mask = mask.abi();
  call.OnEveryKernel([&] {
    for (std::int64_t row = 8; row < 16; ++row) EXPECT_NEAR(call.o.At({0, row, 0, 0}), 1.0, 1e-6);
  });
}

// Dao-AILab/flash-attention#1786
TEST(Faults, B048_EightyThousandSequences) {
  constexpr std::int64_t kSequences = 80000;
  AttentionCall call(Element::kF32, {kSequences, 1, 2}, {kSequences, 1, 2}, {kSequences, 1, 2});
  call.FillNormal(9);
  std::vector<std::int64_t> offsets(kSequences + 1);
  std::iota(offsets.begin(), offsets.end(), 0);
  IntTensor cu(offsets);
  call.varlen.cu_seqlens_q = cu.abi();
  call.varlen.cu_seqlens_kv = cu.abi();
  call.OnEveryKernel([&] {
    ForEachIndex(call.o.shape(),
                 [&](const Indices& at) { EXPECT_NEAR(call.o.At(at), call.v.At(at), 1e-6); });
  });
}

// Dao-AILab/flash-attention#443: one, two, three keys under many queries.
TEST(Faults, B144_LastQueryAloneSeesTheOnlyKey) {
  AttentionCall call(Element::kF32, {256, 1, 32}, {3, 1, 32}, {3, 1, 32});
  call.FillNormal(10);
  IntTensor cu_q({0, 76, 110, 256});
  IntTensor cu_kv({0, 1, 2, 3});
  call.varlen.cu_seqlens_q = cu_q.abi();
  call.varlen.cu_seqlens_kv = cu_kv.abi();
  call.varlen.max_seqlen_q = 256;
  call.varlen.max_seqlen_kv = 3;
  call.score.causal = HEED_CAUSAL_ON;
  call.OnEveryKernel([&] {
    for (std::int64_t row = 0; row < 256; ++row) {
      const std::int64_t key = row == 75 ? 0 : row == 109 ? 1 : row == 255 ? 2 : -1;
      for (std::int64_t dim = 0; dim < 32; ++dim) {
        const double expected = key < 0 ? 0.0 : call.v.At({key, 0, dim});
        EXPECT_NEAR(call.o.At({row, 0, dim}), expected, key < 0 ? 0.0 : 1e-6) << row;
      }
    }
  });
}

}  // namespace
}  // namespace heed::test
