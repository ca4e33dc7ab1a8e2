// Threads, processes, batches and CPU targets.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <deque>
#include <string>

#include "faults/backward_call.h"
#include "support/attention_call.h"
#include "support/emulated.h"
#include "support/kernel_rows.h"

namespace heed::test {
namespace {

// pytorch/pytorch#176091
TEST(Faults, B196_EveryThreadCountGivesTheSameBits) {
  for (const std::int64_t length : {32, 33, 64}) {
    AttentionCall call(Element::kF32, {1, length, 1, 16}, {1, length, 1, 16}, {1, length, 1, 16});
    call.FillNormal(1);
    call.exec.num_threads = 1;
    call.OnEveryKernel([&] {
      StridedTensor expected(Element::kF32, call.o.shape());
      expected.Fill([&](const Indices& at) { return call.o.At(at); });
      for (const std::int32_t num_threads : {2, 3, 4, 7, 8}) {
        call.exec.num_threads = num_threads;
        ASSERT_EQ(call.Run(), HEED_OK);
        ExpectSameValues(expected, call.o);
      }
      call.exec.num_threads = 1;
    });
  }
}

// Blocks of keys that different workers have add to the same query gradients.
TEST(Faults, B196_EveryThreadCountGivesTheSameGradients) {
  for (const bool is_packed : {false, true}) {
    for (const heed_causal_t causal : {HEED_CAUSAL_OFF, HEED_CAUSAL_ON}) {
      const Indices q_shape = is_packed ? Indices{180, 4, 20} : Indices{2, 90, 4, 20};
      const Indices kv_shape = is_packed ? Indices{1100, 2, 20} : Indices{2, 700, 2, 20};
      BackwardCall call(Element::kF32, q_shape, kv_shape, kv_shape);
      IntTensor cu_q({0, 61, 61, 180}), cu_kv({0, 300, 420, 1100});
      if (is_packed) {
        call.varlen.cu_seqlens_q = cu_q.abi();
        call.varlen.cu_seqlens_kv = cu_kv.abi();
      }
      call.score.causal = causal;
      call.exec.backend = call.backward_exec.backend = HEED_BACKEND_CPU;
      call.backward_exec.num_threads = 1;
      call.RunBoth();
      const StridedTensor* gradients[] = {&call.dq, &call.dk, &call.dv};
      std::deque<StridedTensor> expected;  // does not move them
      for (const StridedTensor* gradient : gradients) {
        expected.emplace_back(Element::kF32, gradient->shape());
        expected.back().Fill([&](const Indices& at) { return gradient->At(at); });
      }
      for (const std::int32_t num_threads : {2, 3, 8, 8, 8}) {
        call.backward_exec.num_threads = num_threads;
        call.RunBoth();
        for (std::size_t i = 0; i < std::size(gradients); ++i) {
          ExpectSameValues(expected[i], *gradients[i]);
        }
      }
    }
  }
}

// Dao-AILab/flash-attention#47: many keys, batch 32 against each sequence alone (strides repeat
// one sequence).
TEST(Faults, B193_BatchOf32EqualsBatchOf1) {
  AttentionCall one(Element::kBF16, {1, 5, 2, 16}, {1, 3500, 1, 16}, {1, 3500, 1, 16});
  one.FillNormal(2);
  ASSERT_EQ(one.Run(), HEED_OK);
  AttentionCall many(Element::kBF16, {32, 5, 2, 16}, {32, 3500, 1, 16}, {32, 3500, 1, 16});
  heed_tensor_t views[3] = {*many.q.abi(), *many.k.abi(), *many.v.abi()};
  std::int64_t q_strides[4] = {0, 32, 16, 1};
  std::int64_t kv_strides[4] = {0, 16, 16, 1};
  const heed_tensor_t* sources[3] = {one.q.abi(), one.k.abi(), one.v.abi()};
  for (int at = 0; at < 3; ++at) {
    views[at].data = sources[at]->data;
    views[at].strides = at == 0 ? q_strides : kv_strides;
  }
  many.args.q = &views[0];
  many.args.k = &views[1];
  many.args.v = &views[2];
  ASSERT_EQ(many.Run(), HEED_OK) << heed_last_error();
  ForEachIndex(many.o.shape(), [&](const Indices& at) {
    EXPECT_EQ(many.o.At(at), one.o.At({0, at[1], at[2], at[3]}));
  });
}

// ml-explore/mlx#3573: row 0 does not notice how many rows follow.
TEST(Faults, B194_FirstRowKeepsItsBitsForEveryQueryCount) {
  AttentionCall longest(Element::kF32, {1, 70, 1, 32}, {1, 300, 1, 32}, {1, 300, 1, 32});
  longest.FillNormal(3);
  longest.exec.fixed_split = HEED_ON;
  longest.OnEveryKernel([&] {
    const std::vector<double> expected = longest.OutputRow({0, 0, 0});
    for (const std::int64_t q_len : {1, 2, 7, 8, 9, 16, 23, 24, 25, 48, 49}) {
      AttentionCall call(Element::kF32, {1, q_len, 1, 32}, {1, 300, 1, 32}, {1, 300, 1, 32});
      call.q.Fill([&](const Indices& at) { return longest.q.At(at); });
      call.k.Fill([&](const Indices& at) { return longest.k.At(at); });
      call.v.Fill([&](const Indices& at) { return longest.v.At(at); });
      call.exec = longest.exec;
      ASSERT_EQ(call.Run(), HEED_OK);
      EXPECT_EQ(call.OutputRow({0, 0, 0}), expected) << q_len << " queries";
    }
  });
}

// pytorch/pytorch#17357: the pool of the parent does not exist in a forked child.
TEST(Faults, B161_CallAfterFork) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not follow forks of threaded processes";
#endif
  if (IsEmulated()) GTEST_SKIP() << kNoThreadsAfterFork;
  AttentionCall call(Element::kF32, {4, 64, 2, 16}, {4, 64, 2, 16}, {4, 64, 2, 16});
  call.FillNormal(4);
  call.exec.num_threads = 4;
  ASSERT_EQ(call.Run(), HEED_OK);
  const std::vector<double> expected = call.OutputRow({3, 5, 1});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // a deadlock ends the child
    const bool is_same = call.Run() == HEED_OK && call.OutputRow({3, 5, 1}) == expected;
    _exit(is_same ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

// leejet/stable-diffusion.cpp#1343 and modelscope/dash-infer#22: availability is the CPU's, not
// the build's, and the library says why a target is missing.
TEST(Faults, B203_B204_MissingTargetsHaveReasons) {
  for (const KernelRow& row : AllKernelRows()) {
    if (row.op != "Forward" || row.backend != "Cpu") continue;
    bool cpu_has_it = true;
#if defined(__x86_64__)
    if (row.target == "Avx2") cpu_has_it = __builtin_cpu_supports("avx2");
    if (row.target == "Avx512") cpu_has_it = __builtin_cpu_supports("avx512f");
    if (row.target == "Avx512Bf16") cpu_has_it = __builtin_cpu_supports("avx512bf16");
#endif
    const std::string why = WhyRowCannotRun(row);
    if (!cpu_has_it) {
      EXPECT_NE(why.find("no "), std::string::npos) << row.id << ": " << why;
    }
  }
}

// ggml-org/llama.cpp#12526: what was not chosen, and why, is there to be read.
TEST(Faults, B213_ExplainNamesTheRowAndTheOthers) {
  AttentionCall call(Element::kF32, {1, 8, 1, 64}, {1, 8, 1, 64}, {1, 8, 1, 64});
  char text[16384];
  ASSERT_EQ(heed_explain(HEED_OP_FORWARD, &call.args, text, sizeof text, nullptr), HEED_OK);
  const std::string explained = text;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK);
  EXPECT_NE(explained.find(plan.kernel_id), std::string::npos) << explained;
  for (const KernelRow& row : AllKernelRows()) {
    if (row.op != "Forward") continue;
    EXPECT_NE(explained.find(row.id), std::string::npos) << row.id;
  }
}

// LaurentMazare/tch-rs#971: subnormal weights and values cost no time. Ten times is the size of
// the fault; the measured ratio is near 1.
TEST(Faults, B202_SubnormalsAreNotSlow) {
  AttentionCall call(Element::kF32, {1, 96, 1, 64}, {1, 2048, 1, 64}, {1, 2048, 1, 64});
  call.exec.num_threads = 1;
  const auto best_seconds = [&] {
    double best = HUGE_VAL;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(heed_forward(&call.args), HEED_OK);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      best = std::min(best, elapsed.count());
    }
    return best;
  };
  call.FillNormal(5);
  const double normal_seconds = best_seconds();
  // Scores from 0 down to -100: weights from 1 to 4e-44.
  call.q.Fill([](const Indices&) { return 1.0; });
  call.k.Fill([](const Indices& at) { return -100.0 / 8 * static_cast<double>(at[1]) / 2048; });
  call.v.Fill([](const Indices& at) { return 1e-39 * static_cast<double>(1 + at[1] % 7); });
  EXPECT_LT(best_seconds(), 3 * normal_seconds);
}

}  // namespace
}  // namespace heed::test
