// Sizes beyond 32 bits, many batches, bad lengths on the device, and errors that stick.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "gpu/cuda.h"
#include "gpu/device_call.h"
#include "support/attention_call.h"

namespace heed::test {
namespace {

heed_device_errors_t TakeErrors() {
  heed_device_errors_t errors = HEED_DEVICE_ERRORS_INIT;
  EXPECT_EQ(heed_check_device_errors({HEED_DEVICE_CUDA, 0}, &errors), HEED_OK);
  return errors;
}

// One key: o = v whatever the scores are, up to the rounding of the weight and of o to fp16.
TEST(GpuLimits, MoreBatchesThanAGridHasRows) {
  constexpr std::int64_t kBatch = 70000;
  AttentionCall call(Element::kF16, {kBatch, 1, 1, 8}, {kBatch, 1, 1, 8}, {kBatch, 1, 1, 8});
  call.FillNormal(1);
  call.args.varlen = nullptr;
  DeviceForwardCall device(call.args, 1, 1);
  ASSERT_EQ(heed_forward(device.args()), HEED_OK) << heed_last_error();
  ASSERT_EQ(device.Finish(), "");
  ForEachIndex(call.o.shape(), [&](const Indices& at) {
    const double expected = call.v.At(at);
    ASSERT_NEAR(call.o.At(at), expected, 0x1p-10 * std::abs(expected)) << ToString(at);
  });
}

// Elements of the second sequence lie beyond 2^31 elements and 2^32 bytes.
TEST(GpuLimits, OffsetsBeyond32Bits) {
  constexpr std::int64_t kRows = 70, kDim = 64;
  constexpr std::int64_t kBatchElems = (std::int64_t{1} << 31) + 4096;
  const std::size_t buffer_bytes = (kBatchElems + kRows * kDim) * 2;
  if (Cuda::Get().FreeBytes() < 5 * buffer_bytes) GTEST_SKIP() << "needs 22 GB of GPU memory";
  AttentionCall call(Element::kF16, {2, kRows, 1, kDim}, {2, kRows, 1, kDim}, {2, kRows, 1, kDim});
  call.FillNormal(2);
  call.args.varlen = nullptr;
  std::vector<double> expected;
  {
    DeviceForwardCall device(call.args, kRows, kRows);
    ASSERT_EQ(heed_forward(device.args()), HEED_OK) << heed_last_error();
    ASSERT_EQ(device.Finish(), "");
    ForEachIndex(call.o.shape(), [&](const Indices& at) { expected.push_back(call.o.At(at)); });
  }
  std::int64_t strides[4] = {kBatchElems, kDim, kDim, 1};
  std::vector<std::unique_ptr<DeviceBlock>> buffers;
  std::vector<heed_tensor_t> tensors;
  const std::size_t half_bytes = static_cast<std::size_t>(kRows * kDim) * 2;
  for (StridedTensor* host : {&call.q, &call.k, &call.v, &call.o}) {
    buffers.push_back(std::make_unique<DeviceBlock>(buffer_bytes));
    const auto* bytes = static_cast<const char*>(host->abi()->data);
    const std::uint64_t base = buffers.back()->address();
    Cuda::Get().ToDevice(base, bytes, half_bytes);
    Cuda::Get().ToDevice(base + kBatchElems * 2, bytes + half_bytes, half_bytes);
    tensors.push_back(*host->abi());
    tensors.back().data = buffers.back()->data();
    tensors.back().strides = strides;
    tensors.back().device = {HEED_DEVICE_CUDA, 0};
  }
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  args.q = &tensors[0];
  args.k = &tensors[1];
  args.v = &tensors[2];
  args.o = &tensors[3];
  ASSERT_EQ(heed_forward(&args), HEED_OK) << heed_last_error();
  auto* o = static_cast<char*>(call.o.abi()->data);
  call.o.PoisonAll(Poison::kNaN);
  Cuda::Get().ToHost(o, buffers[3]->address(), half_bytes);
  Cuda::Get().ToHost(o + half_bytes, buffers[3]->address() + kBatchElems * 2, half_bytes);
  std::vector<double> actual;
  ForEachIndex(call.o.shape(), [&](const Indices& at) { actual.push_back(call.o.At(at)); });
  EXPECT_EQ(actual, expected);
}

TEST(GpuLimits, BadOffsetsAreClampedAndCounted) {
  TakeErrors();
  AttentionCall call(Element::kF16, {20, 2, 32}, {20, 2, 32}, {20, 2, 32});
  call.FillNormal(3);
  IntTensor offsets({0, 15, 9, 4000});
  call.varlen.cu_seqlens_q = call.varlen.cu_seqlens_kv = offsets.abi();
  DeviceForwardCall device(call.args, 20, 20);
  ASSERT_EQ(heed_forward(device.args()), HEED_OK) << heed_last_error();
  EXPECT_EQ(device.Finish(), "");
  EXPECT_GE(TakeErrors().num_bad_lengths, 1);
  EXPECT_EQ(TakeErrors().num_bad_lengths, 0) << "reading clears the counter";
}

TEST(GpuLimits, BadBlockTableEntriesAreClampedAndCounted) {
  TakeErrors();
  AttentionCall call(Element::kF16, {1, 4, 1, 32}, {3, 16, 1, 32}, {3, 16, 1, 32});
  call.FillNormal(4);
  IntTensor table(Indices{1, 3}, {0, 77, -5});
  IntTensor used({40});
  call.paging.block_table = table.abi();
  call.args.paging = &call.paging;
  call.varlen.seqused_kv = used.abi();
  DeviceForwardCall device(call.args, 4, 48);
  ASSERT_EQ(heed_forward(device.args()), HEED_OK) << heed_last_error();
  EXPECT_EQ(device.Finish(), "");
  EXPECT_GE(TakeErrors().num_bad_block_entries, 1);
}

TEST(GpuLimits, GoodLengthsCountNothing) {
  TakeErrors();
  AttentionCall call(Element::kF16, {20, 2, 32}, {20, 2, 32}, {20, 2, 32});
  call.FillNormal(3);
  IntTensor offsets({0, 15, 15, 20});
  call.varlen.cu_seqlens_q = call.varlen.cu_seqlens_kv = offsets.abi();
  DeviceForwardCall device(call.args, 15, 15);
  ASSERT_EQ(heed_forward(device.args()), HEED_OK) << heed_last_error();
  EXPECT_EQ(device.Finish(), "");
  EXPECT_EQ(TakeErrors().num_bad_lengths, 0);
}

TEST(GpuLimits, NoScoreMatrixInTheWorkspace) {
  std::int64_t shape[4] = {1, 131072, 16, 128};
  std::int64_t lse_shape[3] = {1, 16, 131072};
  heed_tensor_t rows = {
      nullptr, {HEED_DEVICE_CUDA, 0}, 4, {HEED_DTYPE_BFLOAT, 16, 1}, shape, nullptr, 0};
  heed_tensor_t lse = {
      nullptr, {HEED_DEVICE_CUDA, 0}, 3, {HEED_DTYPE_FLOAT, 32, 1}, lse_shape, nullptr, 0};
  heed_forward_args_t forward = HEED_FORWARD_ARGS_INIT;
  forward.q = forward.k = forward.v = forward.o = &rows;
  forward.lse = &lse;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &forward, &plan), HEED_OK) << heed_last_error();
  EXPECT_EQ(plan.workspace_bytes, 0u);
  heed_backward_args_t backward = HEED_BACKWARD_ARGS_INIT;
  backward.forward = &forward;
  backward.d_o = backward.dq = backward.dk = backward.dv = &rows;
  ASSERT_EQ(heed_plan(HEED_OP_BACKWARD, &backward, &plan), HEED_OK) << heed_last_error();
  // fp32 sums of dq and two numbers a row.
  EXPECT_LE(plan.workspace_bytes, std::size_t{131072} * 16 * (128 + 2) * 4 + 4096);
}

// A kernel that reads unmapped memory ruins the context; later calls must say so, and not crash.
TEST(GpuLimitsDeathTest, ErrorThatSticksIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        AttentionCall call(Element::kF16, {1, 4, 1, 32}, {1, 4, 1, 32}, {1, 4, 1, 32});
        call.args.varlen = nullptr;
        DeviceForwardCall device(call.args, 4, 4);
        heed_forward_args_t args = *device.args();
        heed_tensor_t q = *args.q;
        q.data = reinterpret_cast<void*>(std::uintptr_t{0x10000});
        args.q = &q;
        if (heed_forward(&args) != HEED_OK) std::exit(3);
        if (Cuda::Get().StickyError().empty()) std::exit(4);
        const heed_status_t status = heed_forward(device.args());
        std::exit(status == HEED_DEVICE_ERROR && heed_last_error()[0] != '\0' ? 0 : 5);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace heed::test
