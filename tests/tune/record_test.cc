// Problem classes and records as text.
#include "core/tune/record.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/problems.h"
#include "core/sha256.h"

namespace heed::core::tune {
namespace {

TEST(ProblemClass, NumbersAreRoundedDownToThreeBits) {
  for (std::int64_t exact = -1; exact <= 8; ++exact) EXPECT_EQ(RoundDown(exact), exact);
  EXPECT_EQ(RoundDown(9), 8);
  EXPECT_EQ(RoundDown(4096), 4096);
  EXPECT_EQ(RoundDown(5119), 4096);
  EXPECT_EQ(RoundDown(5120), 5120);
  EXPECT_EQ(RoundDown(std::numeric_limits<std::int64_t>::max()), std::int64_t{7} << 60);
}

ProblemClass ClassAfter(void (*change)(ForwardProblem*)) {
  ForwardProblem problem = test::DenseProblem(DType::kBF16);
  change(&problem);
  return ClassOf(problem, 4);
}

TEST(ProblemClass, SimilarProblemsShareOne) {
  const ProblemClass plain = ClassAfter([](ForwardProblem*) {});
  EXPECT_EQ(plain, ClassAfter([](ForwardProblem* p) { p->shape.max_q_len = 97; }));
  EXPECT_EQ(plain, ClassAfter([](ForwardProblem* p) { p->score.scale = 0.7; }));
  // Two sequences of 8 heads are to a GPU what four of 4 are.
  EXPECT_EQ(plain, ClassAfter([](ForwardProblem* p) {
              p->shape.batch = 4;
              p->shape.num_q_heads = 4;
            }));
  EXPECT_EQ(HashOfClass{}(plain), HashOfClass{}(ClassAfter([](ForwardProblem*) {})));
}

TEST(ProblemClass, WhatDecidesIsApart) {
  const std::vector<void (*)(ForwardProblem*)> changes = {
      [](ForwardProblem*) {},
      [](ForwardProblem* p) { p->shape.head_dim = 72; },
      [](ForwardProblem* p) { p->shape.head_dim_v = 72; },
      [](ForwardProblem* p) { p->shape.batch = 3; },
      [](ForwardProblem* p) { p->shape.group = 2; },
      [](ForwardProblem* p) { p->shape.max_q_len = 112; },
      [](ForwardProblem* p) { p->shape.max_kv_len = 320; },
      [](ForwardProblem* p) { p->score.window.right = 0; },
      [](ForwardProblem* p) { p->score.window.left = 64; },
      [](ForwardProblem* p) { p->score.softcap = 30.0; },
      [](ForwardProblem* p) { p->score.alibi_slopes.is_present = true; },
      [](ForwardProblem* p) { p->score.bias.dtype = DType::kBF16; },
      [](ForwardProblem* p) { p->score.bias.dtype = DType::kF32; },
      [](ForwardProblem* p) { p->score.mask.dtype = DType::kBool; },
      [](ForwardProblem* p) { p->score.sinks.is_present = true; },
      [](ForwardProblem* p) { p->score.dropout.drop_threshold = 9; },
      [](ForwardProblem* p) { p->lse.dtype = DType::kF32; },
      [](ForwardProblem* p) { p->q_packing = Packing::kPacked; },
      [](ForwardProblem* p) { p->kv_packing = Packing::kPacked; },
      [](ForwardProblem* p) { p->seqused_q.is_present = true; },
      [](ForwardProblem* p) { p->seqused_kv.is_present = true; },
      [](ForwardProblem* p) { p->block_table.is_present = true; },
      [](ForwardProblem* p) { p->k.head_stride_elems = 1; },
      [](ForwardProblem* p) { p->q.dtype = DType::kF16; },
  };
  for (std::size_t a = 0; a < changes.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_FALSE(ClassAfter(changes[a]) == ClassAfter(changes[b])) << a << " and " << b;
    }
    // Each survives being written down.
    ProblemClass read;
    const std::string text = ClassText(ClassAfter(changes[a]));
    ASSERT_TRUE(ParseClass(text, &read)) << text;
    EXPECT_EQ(read, ClassAfter(changes[a])) << text;
  }
}

TEST(ProblemClass, OfBackwardCallsIsApart) {
  BackwardProblem problem;
  problem.forward = test::DenseProblem(DType::kBF16);
  const ProblemClass plain = ClassOf(problem, 0);
  EXPECT_FALSE(plain == ClassOf(problem.forward, 0));
  problem.forward.exec.deterministic = true;
  const ProblemClass deterministic = ClassOf(problem, 0);
  EXPECT_FALSE(plain == deterministic);
  problem.d_bias.dtype = DType::kF32;
  EXPECT_FALSE(deterministic == ClassOf(problem, 0));
  EXPECT_FALSE(plain == ClassOf(problem, 1)) << "threads";
}

TEST(ProblemClass, OtherTextsAreRefused) {
  const std::string text = ClassText(ClassOf(test::DenseProblem(DType::kF32), 2));
  EXPECT_EQ(text,
            "forward f32 d=64 dv=64 heads=16 group=4 sq=96 skv=256 rows=0 left=-1 right=-1 page=0 "
            "threads=2 with=aligned");
  ProblemClass read;
  for (std::size_t length = 0; length < text.size(); ++length) {
    // "with=" lists names, which may end early only where one ends.
    EXPECT_FALSE(ParseClass(text.substr(0, length), &read)) << text.substr(0, length);
  }
  EXPECT_FALSE(ParseClass(text + "+bogus", &read));
  EXPECT_FALSE(ParseClass("decode" + text.substr(7), &read));
  EXPECT_FALSE(ParseClass("forward i8" + text.substr(11), &read));
}

Record SomeRecord() {
  Record record;
  record.device = "cuda: Some\nGPU \"x\"";
  record.library = "0.1.0 abc";
  record.problem = ClassOf(test::DenseProblem(DType::kBF16), 0);
  record.kernel_id = "cuda.a";
  record.default_id = "cuda.b";
  record.kernel_seconds = 1.25e-4;
  record.default_seconds = 2.5e-4;
  return record;
}

TEST(Record, SurvivesBeingWritten) {
  Record read;
  ASSERT_EQ(DecodeRecord(EncodeRecord(SomeRecord()), &read), "");
  EXPECT_EQ(read.device, "cuda: Some?GPU \"x\"");
  EXPECT_EQ(read.library, "0.1.0 abc");
  EXPECT_EQ(read.problem, SomeRecord().problem);
  EXPECT_EQ(read.kernel_id, "cuda.a");
  EXPECT_EQ(read.default_id, "cuda.b");
  EXPECT_EQ(read.kernel_seconds, 1.25e-4);
  EXPECT_EQ(read.default_seconds, 2.5e-4);
  EXPECT_EQ(RecordFileName(read), RecordFileName(SomeRecord()));
}

TEST(Record, EveryCutAndEveryChangedByteIsSeen) {
  const std::string whole = EncodeRecord(SomeRecord());
  Record read;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(DecodeRecord(whole.substr(0, length), &read), "") << length;
    std::string changed = whole;
    changed[length] ^= 1;
    EXPECT_NE(DecodeRecord(changed, &read), "") << length;
  }
  EXPECT_NE(DecodeRecord(whole + "x", &read), "");
}

// The text with its checksum made right again.
std::string Signed(const std::string& text) {
  const std::string body = text.substr(0, text.rfind("checksum: "));
  return body + "checksum: " + Hex(Sha256Of(body)) + "\n";
}

TEST(Record, WithARightChecksumStillHasToAddUp) {
  const std::string whole = EncodeRecord(SomeRecord());
  Record read;
  ASSERT_EQ(DecodeRecord(Signed(whole), &read), "");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    return DecodeRecord(Signed(text), &read);
  };
  EXPECT_EQ(replaced("heed tuning 1", "heed tuning 2"), "has another format");
  for (const char* seconds : {"0", "-1", "nan", "inf", "1e", "", "0x1p-3"}) {
    EXPECT_EQ(replaced("kernel_seconds: 0.000125", std::string("kernel_seconds: ") + seconds),
              "does not add up")
        << seconds;
  }
  EXPECT_EQ(replaced("problem: forward", "problem: combine"), "does not add up");
  EXPECT_EQ(replaced("default: cuda.b\n", ""), "does not add up");
  EXPECT_EQ(replaced("checksum: ", "more: x\nchecksum: "), "does not add up");
}

}  // namespace
}  // namespace heed::core::tune
