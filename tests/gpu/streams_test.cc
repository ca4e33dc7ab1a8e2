// Streams, graphs, contexts, threads, workspaces and devices: what a call does to its surroundings.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "gpu/cuda.h"
#include "gpu/device_call.h"
#include "support/attention_call.h"

namespace heed::test {
namespace {

std::vector<double> ValuesOf(const StridedTensor& tensor) {
  std::vector<double> values;
  ForEachIndex(tensor.shape(), [&](const Indices& at) { values.push_back(tensor.At(at)); });
  return values;
}

// A causal call of several tiles, and its result from a plain run on the default stream.
struct UsualCall : AttentionCall {
  explicit UsualCall(std::int64_t kv_len = 300, std::int64_t head_dim = 64)
      : AttentionCall(Element::kF16, {2, 200, 4, head_dim}, {2, kv_len, 2, head_dim},
                      {2, kv_len, 2, head_dim}) {
    FillNormal(static_cast<std::uint64_t>(kv_len));
    score.causal = HEED_CAUSAL_ON;
    args.varlen = nullptr;
  }

  // Fresh poison in o, then the GPU's o.
  std::vector<double> RunOn(CudaStream stream) {
    o.PoisonAll(Poison::kNaN);
    DeviceForwardCall call(args, 200, 300);
    call.exec().stream = stream;
    EXPECT_EQ(heed_forward(call.args()), HEED_OK) << heed_last_error();
    EXPECT_EQ(call.Finish(), "");
    return ValuesOf(o);
  }
};

TEST(GpuStreams, SideStreamGivesTheSameBits) {
  UsualCall call;
  const std::vector<double> expected = call.RunOn(nullptr);
  const CudaStream stream = Cuda::Get().NewStream();
  EXPECT_EQ(call.RunOn(stream), expected);
  Cuda::Get().Destroy(stream);
}

TEST(GpuStreams, ThreadWithoutContextIsLeftWithoutOne) {
  UsualCall call;
  const std::vector<double> expected = call.RunOn(nullptr);
  DeviceForwardCall device(call.args, 200, 300);
  bool was_null_before = false, is_null_after = false;
  heed_status_t status = HEED_INTERNAL;
  std::thread([&] {
    was_null_before = Cuda::PeekCurrent() == nullptr;
    status = heed_forward(device.args());
    is_null_after = Cuda::PeekCurrent() == nullptr;
  }).join();
  EXPECT_TRUE(was_null_before);
  EXPECT_TRUE(is_null_after);
  EXPECT_EQ(status, HEED_OK);
  EXPECT_EQ(device.Finish(), "");
  EXPECT_EQ(ValuesOf(call.o), expected);
}

TEST(GpuStreams, ReplayedGraphSeesNewInputsAndLongerLengths) {
  UsualCall call;
  IntTensor used({3, 7});
  heed_varlen_args_t varlen = HEED_VARLEN_ARGS_INIT;
  varlen.seqused_kv = used.abi();
  call.args.varlen = &varlen;
  DeviceForwardCall device(call.args, 200, 300);
  const CudaStream stream = Cuda::Get().NewStream();
  device.exec().stream = stream;
  ASSERT_EQ(heed_prepare(HEED_OP_FORWARD, device.args()), HEED_OK) << heed_last_error();
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, device.args(), &plan), HEED_OK);
  DeviceBlock workspace(plan.workspace_bytes);
  device.exec().workspace = plan.workspace_bytes > 0 ? workspace.data() : nullptr;
  device.exec().workspace_bytes = plan.workspace_bytes;
  Cuda::Get().BeginCapture(stream);
  EXPECT_EQ(heed_forward(device.args()), HEED_OK) << heed_last_error();
  const CudaGraphExec graph = Cuda::Get().EndCapture(stream);
  ASSERT_NE(graph, nullptr);

  const std::int32_t longer[2] = {300, 250};
  const auto lengths = reinterpret_cast<std::uint64_t>(device.args()->varlen->seqused_kv->data);
  Cuda::Get().ToDevice(lengths, longer, sizeof(longer));
  Cuda::Get().Replay(graph, stream);
  Cuda::Get().Wait(stream);
  EXPECT_EQ(device.Finish(), "");
  const std::vector<double> replayed = ValuesOf(call.o);
  Cuda::Get().Destroy(graph);
  Cuda::Get().Destroy(stream);

  used.Set({0}, 300);
  used.Set({1}, 250);
  EXPECT_EQ(call.RunOn(nullptr), replayed);
}

TEST(GpuStreams, UnpreparedCallInsideCaptureSaysWhatIsMissing) {
  UsualCall call(300, 40);  // no other test uses this head dim
  DeviceForwardCall device(call.args, 200, 300);
  const CudaStream stream = Cuda::Get().NewStream();
  device.exec().stream = stream;
  Cuda::Get().BeginCapture(stream);
  EXPECT_EQ(heed_forward(device.args()), HEED_UNAVAILABLE);
  EXPECT_NE(std::strstr(heed_last_error(), "heed_prepare"), nullptr) << heed_last_error();
  const CudaGraphExec graph = Cuda::Get().EndCapture(stream);
  EXPECT_NE(graph, nullptr) << "the refused call broke the capture";
  if (graph != nullptr) Cuda::Get().Destroy(graph);
  Cuda::Get().Destroy(stream);
}

// One query row over many keys: split, so it needs a workspace.
struct SplitCall : AttentionCall {
  SplitCall() : AttentionCall(Element::kBF16, {1, 16, 2, 64}, {1, 8192, 2, 64}, {1, 8192, 2, 64}) {
    FillNormal(5);
    args.varlen = nullptr;
  }
};

TEST(GpuStreams, CaptureWithoutWorkspaceNamesTheBytes) {
  SplitCall call;
  DeviceForwardCall device(call.args, 16, 8192);
  const CudaStream stream = Cuda::Get().NewStream();
  device.exec().stream = stream;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, device.args(), &plan), HEED_OK);
  ASSERT_GT(plan.num_splits, 1);
  ASSERT_GT(plan.workspace_bytes, 0u);
  ASSERT_EQ(heed_prepare(HEED_OP_FORWARD, device.args()), HEED_OK) << heed_last_error();
  Cuda::Get().BeginCapture(stream);
  EXPECT_EQ(heed_forward(device.args()), HEED_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(heed_last_error(), std::to_string(plan.workspace_bytes).c_str()), nullptr)
      << heed_last_error();
  const CudaGraphExec graph = Cuda::Get().EndCapture(stream);
  if (graph != nullptr) Cuda::Get().Destroy(graph);
  Cuda::Get().Destroy(stream);
}

TEST(GpuStreams, EveryKindOfWorkspaceGivesTheSameBits) {
  SplitCall call;
  std::vector<double> expected;
  {
    DeviceForwardCall device(call.args, 16, 8192);
    ASSERT_EQ(heed_forward(device.args()), HEED_OK) << heed_last_error();
    ASSERT_EQ(device.Finish(), "");
    expected = ValuesOf(call.o);
  }
  struct Counts {
    int allocated = 0;
    int released = 0;
  } counts;
  heed_allocator_t allocator = {};
  allocator.struct_size = sizeof(allocator);
  allocator.context = &counts;
  allocator.allocate = [](void* context, std::size_t size_bytes, void*) {
    ++static_cast<Counts*>(context)->allocated;
    return reinterpret_cast<void*>(Cuda::Get().Allocate(size_bytes));
  };
  allocator.release = [](void* context, void* block, std::size_t, void*) {
    ++static_cast<Counts*>(context)->released;
    Cuda::Get().Synchronize();
    Cuda::Get().Free(reinterpret_cast<std::uint64_t>(block));
  };
  call.o.PoisonAll(Poison::kNaN);
  DeviceForwardCall device(call.args, 16, 8192);
  device.exec().allocator = &allocator;
  ASSERT_EQ(heed_forward(device.args()), HEED_OK) << heed_last_error();
  ASSERT_EQ(device.Finish(), "");
  EXPECT_EQ(ValuesOf(call.o), expected);
  EXPECT_EQ(counts.allocated, 1);
  EXPECT_EQ(counts.released, 1);

  allocator.allocate = [](void*, std::size_t, void*) -> void* { return nullptr; };
  EXPECT_EQ(heed_forward(device.args()), HEED_OUT_OF_MEMORY);
}

TEST(GpuStreams, ManyThreadsOnTheFirstCall) {
  UsualCall call(270, 56);  // compiled by no other test
  DeviceForwardCall first(call.args, 200, 300);
  std::atomic<int> num_failed = 0;
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<UsualCall>> calls;
  std::vector<std::vector<double>> results(12);
  for (std::size_t at = 0; at < results.size(); ++at) {
    calls.push_back(std::make_unique<UsualCall>(270, 56));
  }
  for (std::size_t at = 0; at < results.size(); ++at) {
    threads.emplace_back([&, at] {
      const CudaStream stream = Cuda::Get().NewStream();
      DeviceForwardCall device(calls[at]->args, 200, 300);
      device.exec().stream = stream;
      if (heed_forward(device.args()) != HEED_OK || !device.Finish().empty()) ++num_failed;
      results[at] = ValuesOf(calls[at]->o);
      Cuda::Get().Destroy(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_failed, 0);
  for (const std::vector<double>& result : results) EXPECT_EQ(result, results[0]);
}

struct Times {
  double median = 0.0;
  double least = 0.0;
};

Times TimesOf(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples[0]};
}

// Microseconds of a launch, for many in a row that nobody waits for.
template <class Launch>
double HostTimeUs(const Launch& launch) {
  constexpr int kCalls = 100;
  Cuda::Get().Synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int at = 0; at < kCalls; ++at) launch();
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
  Cuda::Get().Synchronize();
  return spent.count() / kCalls;
}

// What a cached call takes beyond the driver's launch of an empty kernel, which is timed in the
// same rounds. The second call runs on a Hopper row where there is one, which needs four tensor
// maps.
TEST(GpuStreams, HostTimeOfACachedCall) {
  constexpr int kRounds = 31;
  constexpr double kMaxUs = 6.0;
  if (!Cuda::Get().LaunchNothing()) GTEST_SKIP() << "no empty kernel to compare with";
  for (const Indices& shape : {Indices{1, 128, 1, 64}, Indices{1, 1024, 32, 128}}) {
    AttentionCall call(Element::kF16, shape, shape, shape);
    call.FillNormal(1);
    call.args.varlen = nullptr;
    DeviceForwardCall device(call.args, shape[1], shape[1]);
    ASSERT_EQ(heed_prepare(HEED_OP_FORWARD, device.args()), HEED_OK) << heed_last_error();
    heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
    ASSERT_EQ(heed_plan(HEED_OP_FORWARD, device.args(), &plan), HEED_OK) << heed_last_error();
    std::vector<double> of_calls, of_launches;
    for (int round = 0; round < kRounds; ++round) {
      of_calls.push_back(HostTimeUs([&] { heed_forward(device.args()); }));
      of_launches.push_back(HostTimeUs([] { Cuda::Get().LaunchNothing(); }));
    }
    const Times calls = TimesOf(of_calls), launches = TimesOf(of_launches);
    std::printf(
        "host time of a cached call, %s: median %.2f us, least %.2f us; of an empty launch: median "
        "%.2f us, least %.2f us\n",
        plan.kernel_id, calls.median, calls.least, launches.median, launches.least);
    EXPECT_LT(calls.least - launches.least, kMaxUs);
    // Nothing else runs: scripts/gpu_test.py says so of the machine while it runs this program.
    if (std::getenv("HEED_TEST_QUIET") != nullptr) {
      EXPECT_LT(calls.median - launches.median, kMaxUs);
    }
  }
}

TEST(GpuStreams, TensorsOfADeviceThatIsNotThere) {
  UsualCall call;
  DeviceForwardCall device(call.args, 200, 300);
  heed_forward_args_t args = *device.args();
  std::vector<heed_tensor_t> moved;
  for (const heed_tensor_t* tensor : {args.q, args.k, args.v, args.o, args.lse}) {
    moved.push_back(*tensor);
    moved.back().device.device_id = 1000;
  }
  args.q = &moved[0];
  args.k = &moved[1];
  args.v = &moved[2];
  args.o = &moved[3];
  args.lse = &moved[4];
  EXPECT_EQ(heed_forward(&args), HEED_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(heed_last_error(), "1000"), nullptr) << heed_last_error();
}

TEST(GpuStreams, SecondDevice) {
  Cuda& cuda = Cuda::Get();
  if (cuda.num_devices() < 2) GTEST_SKIP() << "this machine has one CUDA device";
  UsualCall call;
  const std::vector<double> expected = call.RunOn(nullptr);
  cuda.Use(1);
  call.o.PoisonAll(Poison::kNaN);
  DeviceForwardCall device(call.args, 200, 300);
  std::vector<heed_tensor_t> moved;
  heed_forward_args_t args = *device.args();
  for (const heed_tensor_t* tensor : {args.q, args.k, args.v, args.o, args.lse}) {
    moved.push_back(*tensor);
    moved.back().device.device_id = 1;
  }
  args.q = &moved[0];
  args.k = &moved[1];
  args.v = &moved[2];
  args.o = &moved[3];
  args.lse = &moved[4];
  cuda.Use(0);  // the tensors' device decides, not the current one
  EXPECT_EQ(heed_forward(&args), HEED_OK) << heed_last_error();
  cuda.Use(1);
  EXPECT_EQ(device.Finish(), "");
  cuda.Use(0);
  EXPECT_EQ(ValuesOf(call.o), expected);
}

}  // namespace
}  // namespace heed::test
