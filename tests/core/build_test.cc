// What the builders put into problems: views, shapes, windows, sequences.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "api/forward_call.h"
#include "core/problem.h"

namespace heed::core {
namespace {

using test::ForwardCall;

ForwardProblem Build(const ForwardCall& call) {
  ForwardProblem problem;
  const Status status = BuildForwardProblem(&call.args, Purpose::kRun, &problem);
  EXPECT_TRUE(status.ok()) << status.message();
  return problem;
}

TEST(Build, DenseShapesAndViews) {
  ForwardCall call;
  call.q.abi.byte_offset = 0;
  const ForwardProblem problem = Build(call);
  EXPECT_EQ(problem.shape.batch, 2);
  EXPECT_EQ(problem.shape.num_q_heads, 4);
  EXPECT_EQ(problem.shape.num_kv_heads, 2);
  EXPECT_EQ(problem.shape.group, 2);
  EXPECT_EQ(problem.shape.max_q_len, 3);
  EXPECT_EQ(problem.shape.max_kv_len, 5);
  EXPECT_EQ(problem.shape.total_q_rows, 6);
  EXPECT_EQ(problem.shape.total_kv_rows, 10);
  EXPECT_EQ(problem.shape.head_dim, 8);
  EXPECT_EQ(problem.shape.head_dim_v, 6);
  EXPECT_EQ(problem.k.OffsetElems(1, 2, 1), 5 * 16 + 2 * 16 + 8);
  EXPECT_EQ(problem.lse.OffsetElems(1, 2, 1), 12 + 2 * 3 + 1);
  EXPECT_DOUBLE_EQ(problem.score.scale, 1.0 / std::sqrt(8.0));
  EXPECT_EQ(problem.exec.backend, HEED_BACKEND_CPU);
}

TEST(Build, ByteOffsetsMoveTheData) {
  ForwardCall call;
  call.q.shape[0] = 1;
  call.k.shape[0] = call.v.shape[0] = call.o.shape[0] = call.lse.shape[0] = 1;
  call.q.abi.byte_offset = 3 * 4 * 8 * sizeof(float);
  EXPECT_EQ(Build(call).q.data, call.q.data<float>() + 3 * 4 * 8);
}

TEST(Build, CausalIsTheWindowRightZero) {
  const auto window_of = [](heed_causal_t causal, std::int64_t left, std::int64_t right) {
    ForwardCall call;
    call.score.causal = causal;
    call.score.window_left = left;
    call.score.window_right = right;
    return Build(call).score.window;
  };
  EXPECT_EQ(window_of(HEED_CAUSAL_OFF, -1, -1).right, device::kUnlimited);
  EXPECT_EQ(window_of(HEED_CAUSAL_ON, -1, -1).right, 0);
  EXPECT_EQ(window_of(HEED_CAUSAL_ON, 3, 7).right, 0);
  EXPECT_EQ(window_of(HEED_CAUSAL_ON, 3, 7).left, 3);
  EXPECT_EQ(window_of(HEED_CAUSAL_OFF, 3, 7).right, 7);
}

TEST(Build, DropoutIsRoundedToSixteenBits) {
  const auto threshold_of = [](double p) {
    ForwardCall call;
    call.score.dropout_p = p;
    return Build(call).score.dropout.drop_threshold;
  };
  EXPECT_EQ(threshold_of(0.0), 0u);
  EXPECT_EQ(threshold_of(0.25), 16384u);
  EXPECT_EQ(threshold_of(0.9999999), 65535u);
}

TEST(Build, DropoutRngIsReadOnTheHost) {
  test::OwnedTensor rng(test::kU64, {2});
  rng.data<std::uint64_t>()[0] = 11;
  rng.data<std::uint64_t>()[1] = 22;
  ForwardCall call;
  call.score.dropout_p = 0.5;
  call.score.dropout_rng = &rng.abi;
  const DropoutRule rule = Build(call).score.dropout;
  EXPECT_EQ(rule.seed, 11u);
  EXPECT_EQ(rule.offset, 22u);
  EXPECT_EQ(rule.device_rng, nullptr);
}

TEST(Build, BiasAxesAlignAtTheLast) {
  test::OwnedTensor bias(test::kF32, {4, 1, 5});
  ForwardCall call;
  call.score.bias = &bias.abi;
  const ScoreView view = Build(call).score.bias;
  EXPECT_EQ(view.stride_elems, (std::array<std::int64_t, 4>{0, 5, 0, 1}));
}

TEST(Build, PackedSequences) {
  ForwardCall call;
  call.PackQ();
  call.PackKv();
  call.seqused_kv = test::OwnedTensor::Indices({4, 0});
  call.varlen.seqused_kv = &call.seqused_kv.abi;
  const ForwardProblem problem = Build(call);
  EXPECT_EQ(problem.shape.max_q_len, 4);
  EXPECT_EQ(problem.shape.max_kv_len, 7);
  EXPECT_EQ(problem.shape.total_q_rows, 6);
  const Sequence second = problem.SequenceAt(1);
  EXPECT_EQ(second.q_batch, 0);
  EXPECT_EQ(second.q_begin, 2);
  EXPECT_EQ(second.q_slots, 4);
  EXPECT_EQ(second.q_len, 4);
  EXPECT_EQ(second.kv_begin, 7);
  EXPECT_EQ(second.kv_slots, 3);
  EXPECT_EQ(second.kv_len, 0);
  EXPECT_EQ(problem.KvOffsetElems(problem.k, second, 1, 2, 1), (7 + 2) * 16 + 8);
}

TEST(Build, DenseSequencesWithUsedRows) {
  ForwardCall call;
  call.varlen.seqused_q = &call.seqused_q.abi;
  const Sequence first = Build(call).SequenceAt(0);
  EXPECT_EQ(first.q_slots, 3);
  EXPECT_EQ(first.q_len, 2);
  EXPECT_EQ(first.kv_len, 5);
}

TEST(Build, PagesAreFollowed) {
  ForwardCall call;
  call.Page();
  const ForwardProblem problem = Build(call);
  EXPECT_EQ(problem.shape.max_kv_len, 7);
  EXPECT_EQ(problem.block_table.page_slots, 4);
  EXPECT_EQ(problem.block_table.num_pages, 6);
  const Sequence first = problem.SequenceAt(0);
  EXPECT_EQ(first.kv_len, 7);
  // Token 6 of sequence 0: table entry 1 is page 0, slot 2.
  EXPECT_EQ(problem.KvOffsetElems(problem.v, first, 0, 6, 1), 2 * 12 + 6);
  // Token 3: entry 0 is page 5.
  EXPECT_EQ(problem.KvOffsetElems(problem.v, first, 0, 3, 0), 5 * 48 + 3 * 12);
}

TEST(Build, PlanningNeedsNoData) {
  ForwardCall call;
  for (test::OwnedTensor* tensor : {&call.q, &call.k, &call.v, &call.o, &call.lse}) {
    tensor->abi.data = nullptr;
  }
  ForwardProblem problem;
  EXPECT_TRUE(BuildForwardProblem(&call.args, Purpose::kPlan, &problem).ok());
  EXPECT_EQ(problem.q.data, nullptr);
  EXPECT_EQ(BuildForwardProblem(&call.args, Purpose::kRun, &problem).code(), HEED_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace heed::core
