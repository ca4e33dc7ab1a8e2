// Promises about bits: thread counts, repeats, batches, callers' pools and concurrent calls.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/attention_call.h"
#include "support/kernel_rows.h"

namespace heed::test {
namespace {

std::vector<double> OutputsOf(const AttentionCall& call) {
  std::vector<double> outputs;
  ForEachIndex(call.o.shape(), [&](const Indices& at) { outputs.push_back(call.o.At(at)); });
  ForEachIndex(call.lse.shape(), [&](const Indices& at) { outputs.push_back(call.lse.At(at)); });
  return outputs;
}

// Ragged enough to give uneven tasks and, with 700 keys, several key blocks.
struct RaggedCall : AttentionCall {
  explicit RaggedCall(Element element)
      : AttentionCall(element, {2, 131, 6, 40}, {2, 700, 2, 40}, {2, 700, 2, 24}) {
    FillNormal(11);
    score.causal = HEED_CAUSAL_ON;
    score.dropout_p = 0.1;
    score.dropout_seed = 99;
  }
};

constexpr Element kElements[] = {Element::kF32, Element::kF16, Element::kBF16};

TEST(Invariants, SameBitsForEveryThreadCount) {
  for (const Element element : kElements) {
    RaggedCall call(element);
    call.exec.num_threads = 1;
    call.OnEveryKernel([&] {
      const std::vector<double> expected = OutputsOf(call);
      for (const std::int32_t num_threads : {2, 3, 7, 0}) {
        call.exec.num_threads = num_threads;
        ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
        EXPECT_EQ(OutputsOf(call), expected) << num_threads << " threads";
      }
      call.exec.num_threads = 1;
    });
  }
}

TEST(Invariants, SameBitsEveryTime) {
  RaggedCall call(Element::kBF16);
  call.OnEveryKernel([&] {
    const std::vector<double> expected = OutputsOf(call);
    for (int repeat = 0; repeat < 5; ++repeat) {
      ASSERT_EQ(call.Run(), HEED_OK);
      ASSERT_EQ(OutputsOf(call), expected);
    }
  });
}

// Runs all workers on the calling thread, last one first, and counts them.
void ReversedSerialPool(void* context, std::int64_t num_workers,
                        void (*body)(void* body_context, std::int64_t worker), void* body_context) {
  *static_cast<std::int64_t*>(context) += num_workers;
  for (std::int64_t worker = num_workers; worker-- > 0;) body(body_context, worker);
}

// One fresh thread per worker, all at the same time.
void ThreadPerWorkerPool(void* context, std::int64_t num_workers,
                         void (*body)(void* body_context, std::int64_t worker),
                         void* body_context) {
  *static_cast<std::int64_t*>(context) += num_workers;
  std::vector<std::thread> threads;
  for (std::int64_t worker = 0; worker < num_workers; ++worker) {
    threads.emplace_back(body, body_context, worker);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Invariants, CallersPoolGivesTheSameBits) {
  for (const heed_parallel_for_t pool : {ReversedSerialPool, ThreadPerWorkerPool}) {
    RaggedCall call(Element::kF32);
    std::int64_t num_workers_run = 0;
    call.OnEveryKernel([&] {
      const std::vector<double> expected = OutputsOf(call);
      call.exec.num_threads = 4;
      call.exec.parallel_for = pool;
      call.exec.parallel_for_context = &num_workers_run;
      num_workers_run = 0;
      ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
      EXPECT_EQ(OutputsOf(call), expected);
      if (call.exec.backend == HEED_BACKEND_CPU) {
        EXPECT_EQ(num_workers_run, 4);
      }
      call.exec.parallel_for = nullptr;
      call.exec.parallel_for_context = nullptr;
      call.exec.num_threads = 0;
    });
  }
}

// Row (b, i, h) of a batch has the bits of the same row run alone.
void ExpectRowsIndependentOfBatch(std::int64_t batch, heed_toggle_t fixed_split) {
  AttentionCall whole(Element::kF32, {batch, 5, 2, 32}, {batch, 600, 1, 32}, {batch, 600, 1, 32});
  whole.FillNormal(12);
  whole.exec.fixed_split = fixed_split;
  whole.OnEveryKernel([&] {
    for (const std::int64_t b : {std::int64_t{0}, batch / 2, batch - 1}) {
      AttentionCall alone(Element::kF32, {1, 5, 2, 32}, {1, 600, 1, 32}, {1, 600, 1, 32});
      alone.q.Fill([&](const Indices& at) { return whole.q.At({b, at[1], at[2], at[3]}); });
      alone.k.Fill([&](const Indices& at) { return whole.k.At({b, at[1], at[2], at[3]}); });
      alone.v.Fill([&](const Indices& at) { return whole.v.At({b, at[1], at[2], at[3]}); });
      alone.exec = whole.exec;
      ASSERT_EQ(alone.Run(), HEED_OK) << heed_last_error();
      ForEachIndex(alone.o.shape(), [&](const Indices& at) {
        EXPECT_EQ(alone.o.At(at), whole.o.At({b, at[1], at[2], at[3]})) << ToString(at);
      });
    }
  });
}

TEST(Invariants, FixedSplitRowsDoNotDependOnTheBatch) { ExpectRowsIndependentOfBatch(32, HEED_ON); }

// Every caller gets its own results, whatever the others do.
TEST(Invariants, ConcurrentCalls) {
  for (const KernelRow& row : RunnableForwardRows()) {
    if (!row.Takes(Element::kF32)) continue;
    std::atomic<int> num_wrong = 0;
    const auto work = [&](std::uint64_t seed) {
      AttentionCall call(Element::kF32, {1, 33, 2, 16},
                         {1, 70 + static_cast<std::int64_t>(seed), 2, 16},
                         {1, 70 + static_cast<std::int64_t>(seed), 2, 16});
      call.FillNormal(100 * seed);
      const std::string id(row.id);
      call.exec.backend = row.AbiBackend();
      call.exec.kernel = id.c_str();
      call.exec.num_threads = static_cast<std::int32_t>(seed % 3);
      if (call.Run() != HEED_OK) ++num_wrong;
      const std::vector<double> expected = OutputsOf(call);
      for (int repeat = 0; repeat < 20; ++repeat) {
        if (call.Run() != HEED_OK || OutputsOf(call) != expected) ++num_wrong;
      }
    };
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) threads.emplace_back(work, seed);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(num_wrong, 0) << row.id;
  }
}

// The last error belongs to the thread that failed.
TEST(Invariants, ErrorsOfThreadsDoNotMix) {
  std::atomic<int> num_wrong = 0;
  const auto work = [&](std::int64_t head_dim) {
    AttentionCall call(Element::kF32, {1, 2, 1, head_dim}, {1, 2, 1, head_dim + 1},
                       {1, 2, 1, head_dim});
    for (int repeat = 0; repeat < 200; ++repeat) {
      if (heed_forward(&call.args) != HEED_INVALID_ARGUMENT) ++num_wrong;
      const std::string message = heed_last_error();
      if (message.find(std::to_string(head_dim)) == std::string::npos) ++num_wrong;
    }
  };
  std::vector<std::thread> threads;
  for (const std::int64_t head_dim : {10, 20, 30, 40}) threads.emplace_back(work, head_dim);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
}

// Where bf16 dot products are slow (core/choose_row.cc) their rows rank below those of AVX-512.
bool IsSlowHere(const KernelRow& row) {
#if defined(__x86_64__)
  return row.target == "Avx512Bf16" && !__builtin_cpu_is("amd");
#else
  (void)row;
  return false;
#endif
}

// Without a forced id the planner takes the best row that can run here.
TEST(Invariants, PlannerPicksTheHighestRank) {
  for (const Element element : kElements) {
    const KernelRow* best = nullptr;
    for (const KernelRow& row : RunnableForwardRows()) {
      if (row.backend == "Cpu" && row.Takes(element) && !IsSlowHere(row) &&
          (best == nullptr || row.rank > best->rank)) {
        best = &row;
      }
    }
    ASSERT_NE(best, nullptr);
    AttentionCall call(element, {1, 64, 2, 64}, {1, 64, 1, 64}, {1, 64, 1, 64});
    heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
    ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK);
    EXPECT_EQ(plan.kernel_id, best->id);
    EXPECT_EQ(plan.is_slower_substitute, HEED_OFF);
  }
}

}  // namespace
}  // namespace heed::test
