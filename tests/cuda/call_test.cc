// Calls on CUDA tensors from the arguments to the launch, with a driver that runs nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/batch_slices.h"
#include "cuda/fake_driver/device_tensors.h"
#include "cuda/fake_driver/fake_driver.h"
#include "heed/heed.h"

namespace heed::test {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool HasKernels(const FakeCall& call) {
  if (heed_prepare(HEED_OP_FORWARD, &call.args) == HEED_OK) return true;
  const char* required = std::getenv("HEED_REQUIRE_NVRTC");
  EXPECT_TRUE(required == nullptr || std::string(required) != "1") << heed_last_error();
  return false;
}

// Microseconds of a cached forward call in the fastest round: in others the core may be shared.
double HostTimeUs(const FakeCall& call) {
  constexpr int kRounds = 31, kCalls = 400;
  double fastest_us = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int at = 0; at < kCalls; ++at) heed_forward(&call.args);
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    fastest_us = std::min(fastest_us, spent.count() / kCalls);
  }
  return fastest_us;
}

TEST(CudaCall, HostTimeWithoutTheDriver) {
  FakeCall plain(1, 128, 1, 64);
  if (!HasKernels(plain)) GTEST_SKIP() << "NOT TESTED: " << heed_last_error();
  FakeCall large(4, 1024, 16, 128);
  ASSERT_EQ(heed_prepare(HEED_OP_FORWARD, &large.args), HEED_OK) << heed_last_error();
  for (const FakeCall* call : {&plain, &large}) {
    heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
    ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call->args, &plan), HEED_OK);
    const long long num_launches = NumFakeLaunches();
    ASSERT_EQ(heed_forward(&call->args), HEED_OK) << heed_last_error();
    EXPECT_EQ(NumFakeLaunches(), num_launches + 1);
    const double microseconds = HostTimeUs(*call);
    std::printf("%s: %.2f us\n", plan.kernel_id, microseconds);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(microseconds, 6.0);
#endif
  }
}

// The driver encodes a map once; whatever the map depends on makes another.
TEST(CudaCall, TensorMapsAreEncodedOnce) {
  FakeCall call(4, 1024, 16, 128);
  if (!HasKernels(call)) GTEST_SKIP() << "NOT TESTED: " << heed_last_error();
  const auto num_new = [&call] {
    const long long before = NumFakeTensorMaps();
    EXPECT_EQ(heed_forward(&call.args), HEED_OK) << heed_last_error();
    return NumFakeTensorMaps() - before;
  };
  EXPECT_EQ(num_new(), 4);
  EXPECT_EQ(num_new(), 0);
  call.k.tensor().data = static_cast<char*>(call.k.tensor().data) + 4096;
  EXPECT_EQ(num_new(), 1);
  call.v.strides()[1] += 8;
  call.v.strides()[0] += 8 * 1024;
  EXPECT_EQ(num_new(), 1);
  long long in_a_thread = 0;
  std::thread([&] { in_a_thread = num_new(); }).join();
  EXPECT_EQ(in_a_thread, 4) << "threads share none";
  EXPECT_EQ(num_new(), 0);
}

// Each argument once, where the workspace is checked first and alone.
TEST(CudaCall, WorkspaceIsAlignedTo256Bytes) {
  FakeCall call(1, 128, 2, 64);
  alignas(256) static char block[512];
  call.exec.workspace_bytes = 128;
  for (const std::size_t offset : {8, 64, 128}) {
    call.exec.workspace = block + offset;
    EXPECT_EQ(heed_forward(&call.args), HEED_INVALID_ARGUMENT);
    EXPECT_TRUE(Contains(heed_last_error(), "must be aligned to 256 bytes")) << heed_last_error();
    heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
    EXPECT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_INVALID_ARGUMENT);
  }
  call.exec.workspace = block;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  EXPECT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
}

std::string Explain(const FakeCall& call) {
  char text[20000];
  EXPECT_EQ(heed_explain(HEED_OP_FORWARD, &call.args, text, sizeof(text), nullptr), HEED_OK);
  return text;
}

// More tiles than a launch has blocks: the rows that count tiles in 32 bits leave them to others,
// which cut the batch.
TEST(CudaCall, MoreTilesThanALaunchTakesAreCutAlongTheBatch) {
  constexpr std::int64_t kBatch = 300000, kHeads = 16384;
  FakeCall call(kBatch, 1, kHeads, 8);
  call.args.lse = nullptr;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
  EXPECT_EQ(plan.num_tasks, kBatch * kHeads);
  EXPECT_TRUE(Contains(plan.kernel_id, ".sm80.")) << plan.kernel_id;
  EXPECT_TRUE(Contains(Explain(call), "takes at most 2^31 - 1 query tiles")) << Explain(call);
  if (!HasKernels(call)) GTEST_SKIP() << "NOT TESTED: " << heed_last_error();
  TakeFakeGrids();
  ASSERT_EQ(heed_forward(&call.args), HEED_OK) << heed_last_error();
  std::int64_t num_ctas = 0;
  for (const unsigned grid : TakeFakeGrids()) {
    EXPECT_EQ(grid % kHeads, 0u);
    num_ctas += grid;
  }
  EXPECT_EQ(num_ctas, kBatch * kHeads);
  call.score.dropout_p = 0.5;  // its random numbers are counted over the whole batch
  EXPECT_EQ(heed_forward(&call.args), HEED_UNSUPPORTED);
  EXPECT_TRUE(Contains(heed_last_error(), "with dropout")) << heed_last_error();
}

TEST(BatchSlices, BeginWhereTheSequenceDoes) {
  core::ForwardProblem problem;
  problem.q.dtype = problem.k.dtype = problem.v.dtype = problem.o.dtype = core::DType::kF16;
  problem.score.bias.dtype = core::DType::kF32;
  problem.score.mask.dtype = core::DType::kBool;
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  cuda::ForwardArgs whole = {};
  whole.problem.batch = 10;
  whole.q = {at(0x1000), {100, 0, 0}};
  whole.k = {at(0x2000), {200, 0, 0}};
  whole.v = {at(0x3000), {0, 0, 0}};  // packed
  whole.o = {at(0x4000), {300, 0, 0}};
  whole.lse = {static_cast<float*>(at(0x5000)), 7, 0, 0};
  whole.problem.lengths.seqused_kv = {static_cast<const std::int32_t*>(at(0x6000)), 2};
  whole.problem.score.bias = {at(0x7000), {50, 0, 0, 0}};
  whole.problem.score.mask = {at(0x8000), {60, 0, 0, 0}};
  whole.problem.score.alibi_slopes = {static_cast<float*>(at(0x9000)), 16, 1};
  const cuda::ForwardArgs slice = cuda::SliceOfBatch(problem, whole, 3, 4);
  EXPECT_EQ(slice.problem.batch, 4);
  EXPECT_EQ(slice.q.data, at(0x1000 + 3 * 100 * 2));
  EXPECT_EQ(slice.k.data, at(0x2000 + 3 * 200 * 2));
  EXPECT_EQ(slice.v.data, at(0x3000));
  EXPECT_EQ(slice.o.data, at(0x4000 + 3 * 300 * 2));
  EXPECT_EQ(slice.lse.data, at(0x5000 + 3 * 7 * 4));
  EXPECT_EQ(slice.problem.lengths.seqused_kv.data, at(0x6000 + 3 * 2 * 4));
  EXPECT_EQ(slice.problem.lengths.cu_seqlens_q.data, nullptr);
  EXPECT_EQ(slice.problem.score.bias.data, at(0x7000 + 3 * 50 * 4));
  EXPECT_EQ(slice.problem.score.mask.data, at(0x8000 + 3 * 60));
  EXPECT_EQ(slice.problem.score.alibi_slopes.data, at(0x9000 + 3 * 16 * 4));

  // Pages are everybody's; the rows of the table are not.
  whole.problem.paging.block_table = static_cast<const std::int32_t*>(at(0xa000));
  whole.problem.paging.batch_stride_elems = 5;
  const cuda::ForwardArgs paged = cuda::SliceOfBatch(problem, whole, 3, 4);
  EXPECT_EQ(paged.k.data, at(0x2000));
  EXPECT_EQ(paged.problem.paging.block_table, at(0xa000 + 3 * 5 * 4));
}

// Different kernels compile and load side by side, one kernel once.
TEST(CudaCall, FirstCallsOfManyThreads) {
  std::vector<std::unique_ptr<FakeCall>> calls;
  for (const std::int64_t head_dim : {16, 16, 32, 32}) {
    calls.push_back(std::make_unique<FakeCall>(1, 64, 1, head_dim));
  }
  FakeCall probe(1, 64, 1, 64);
  if (!HasKernels(probe)) GTEST_SKIP() << "NOT TESTED: " << heed_last_error();
  const long long num_modules = NumFakeModules();
  std::atomic<int> num_failed = 0;
  std::vector<std::thread> threads;
  for (const auto& call : calls) {
    threads.emplace_back([&] { num_failed += heed_forward(&call->args) != HEED_OK; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_failed, 0);
  EXPECT_EQ(NumFakeModules(), num_modules + 2);
}

}  // namespace
}  // namespace heed::test
