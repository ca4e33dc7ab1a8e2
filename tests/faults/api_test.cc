// Bad arguments are refused by name before anything is written; limits are 64-bit.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/attention_call.h"

namespace heed::test {
namespace {

// pytorch/pytorch#141218
TEST(Faults, B021_ZeroHeads) {
  AttentionCall no_keys(Element::kF32, {0, 1, 4, 8}, {0, 0, 4, 8}, {0, 0, 4, 8});
  no_keys.OnEveryKernel([] {});
  AttentionCall no_heads(Element::kF32, {1, 1, 0, 8}, {1, 2, 0, 8}, {1, 2, 0, 8});
  no_heads.OnEveryKernel([] {});
  AttentionCall no_kv_heads(Element::kF32, {1, 1, 4, 8}, {1, 2, 0, 8}, {1, 2, 0, 8});
  no_kv_heads.q.Fill([](const Indices&) { return 1.0; });
  no_kv_heads.ExpectRefused(HEED_INVALID_ARGUMENT, {"num_kv_heads"});
}

// flashinfer-ai/flashinfer#1654: lengths in another integer type or on another device; strided
// lengths are fine.
TEST(Faults, B029_LengthTensorsSayTheirType) {
  AttentionCall call(Element::kF32, {16, 1, 8}, {16, 1, 8}, {16, 1, 8});
  call.FillNormal(1);
  StridedTensor strided(Element::kI32, {3}, {5});
  strided.Fill([](const Indices& at) { return static_cast<double>(8 * at[0]); });
  call.varlen.cu_seqlens_q = strided.abi();
  call.varlen.cu_seqlens_kv = strided.abi();
  call.OnEveryKernel([] {});

  heed_tensor_t as_int64 = *strided.abi();
  as_int64.dtype.bits = 64;
  call.varlen.cu_seqlens_q = &as_int64;
  call.ExpectRefused(HEED_INVALID_ARGUMENT, {"cu_seqlens_q"});

  heed_tensor_t on_gpu = *strided.abi();
  on_gpu.device = {HEED_DEVICE_CUDA, 0};
  call.varlen.cu_seqlens_q = &on_gpu;
  call.ExpectRefused(HEED_INVALID_ARGUMENT, {"cu_seqlens_q", "device"});
}

// flashinfer-ai/flashinfer#452: tensors of one call on two devices.
TEST(Faults, B155_MixedDevicesAreRefused) {
  AttentionCall call(Element::kF32, {1, 4, 1, 8}, {1, 4, 1, 8}, {1, 4, 1, 8});
  call.FillNormal(2);
  call.k.abi()->device = {HEED_DEVICE_CUDA, 1};
  call.ExpectRefused(HEED_INVALID_ARGUMENT, {"k", "device"});
}

// A plan needs no memory: shapes alone.
heed_status_t PlanOf(const Indices& q, const Indices& kv, heed_plan_info_t* plan) {
  Indices q_shape = q;
  Indices kv_shape = kv;
  const auto tensor = [](Indices& shape) {
    heed_tensor_t result = {};
    result.device = {HEED_DEVICE_CPU, 0};
    result.ndim = static_cast<std::int32_t>(shape.count());
    result.dtype = {HEED_DTYPE_BFLOAT, 16, 1};
    result.shape = shape.data();
    return result;
  };
  const heed_tensor_t q_tensor = tensor(q_shape);
  const heed_tensor_t kv_tensor = tensor(kv_shape);
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  args.q = args.o = &q_tensor;
  args.k = args.v = &kv_tensor;
  return heed_plan(HEED_OP_FORWARD, &args, plan);
}

// deepseek-ai/FlashMLA#91: byte counts of large problems neither wrap nor scale with the batch.
TEST(Faults, B045_WorkspaceBytesOfALargeProblem) {
  heed_plan_info_t small = HEED_PLAN_INFO_INIT;
  heed_plan_info_t large = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(PlanOf({1, 65536, 1, 128}, {1, 65536, 1, 128}, &small), HEED_OK) << heed_last_error();
  ASSERT_EQ(PlanOf({64, 65536, 128, 128}, {64, 65536, 128, 128}, &large), HEED_OK)
      << heed_last_error();
  EXPECT_GT(large.num_tasks, 0);
  EXPECT_LE(large.workspace_bytes, std::size_t{1} << 30);
  EXPECT_GE(large.workspace_bytes, small.workspace_bytes);
}

TEST(Faults, B045_OverflowingShapesAreRefused) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  EXPECT_EQ(PlanOf({kHuge, kHuge, 1, 128}, {kHuge, kHuge, 1, 128}, &plan), HEED_INVALID_ARGUMENT);
  EXPECT_NE(std::string(heed_last_error()), "");
}

// deepseek-ai/FlashMLA#91: one long and a thousand short sequences need no more scratch than the
// long one alone.
TEST(Faults, B191_WorkspaceDoesNotMultiplyBatchByLongest) {
  std::vector<std::int64_t> offsets = {0, 65536};
  for (int short_one = 0; short_one < 1000; ++short_one) offsets.push_back(offsets.back() + 16);
  heed_plan_info_t plans[2] = {HEED_PLAN_INFO_INIT, HEED_PLAN_INFO_INIT};
  for (const std::size_t which : {0, 1}) {
    const std::size_t num_offsets = which == 0 ? 2 : offsets.size();
    IntTensor cu(std::vector<std::int64_t>(offsets.begin(),
                                           offsets.begin() + static_cast<long>(num_offsets)));
    AttentionCall call(Element::kBF16, {offsets.back(), 1, 2}, {offsets.back(), 1, 2},
                       {offsets.back(), 1, 2});
    call.varlen.cu_seqlens_q = call.varlen.cu_seqlens_kv = cu.abi();
    ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plans[which]), HEED_OK);
  }
  EXPECT_LE(plans[1].workspace_bytes, 2 * plans[0].workspace_bytes + (std::size_t{1} << 20));
}

// pytorch/pytorch#146704 and flashinfer-ai/flashinfer#3125: batches past 65535 run whole.
TEST(Faults, B047_B050_BatchOf65536) {
  for (const std::int64_t batch : {65535, 65536}) {
    AttentionCall call(Element::kF16, {batch, 1, 1, 2}, {batch, 1, 1, 2}, {batch, 1, 1, 2});
    call.FillNormal(3);
    call.OnEveryKernel([&] { ExpectSameValues(call.v, call.o); });
  }
}

// Dao-AILab/flash-attention#1812: [B,H,S,D] passed as [B,S,H,D] is slow, not wrong.
TEST(Faults, B049_SeventyThousandHeads) {
  AttentionCall call(Element::kF16, {1, 1, 71280, 2}, {1, 1, 71280, 2}, {1, 1, 71280, 2});
  call.FillNormal(4);
  call.OnEveryKernel([&] { ExpectSameValues(call.v, call.o); });
}

// flashinfer-ai/flashinfer#600: a workspace that
// was planned for a smaller problem.
TEST(Faults, B166_WorkspaceOfAnotherPlanIsRefused) {
  AttentionCall call(Element::kF32, {3, 40, 2, 64}, {3, 40, 1, 64}, {3, 40, 1, 64});
  call.FillNormal(5);
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK);
  ASSERT_GT(plan.workspace_bytes, 0u);
  GuardedBuffer workspace(plan.workspace_bytes, Placement::kGuardBands);
  call.exec.workspace = workspace.data();
  call.exec.workspace_bytes = plan.workspace_bytes - 1;
  call.ExpectRefused(HEED_INVALID_ARGUMENT, {"workspace_bytes"});
}

// NVIDIA/cuopt#1095: a refused call leaves nothing behind.
TEST(Faults, B163_CallAfterARefusedCallWorks) {
  AttentionCall call(Element::kF32, {1, 4, 1, 8}, {1, 4, 1, 8}, {1, 4, 1, 8});
  call.FillNormal(6);
  ASSERT_EQ(call.Run(), HEED_OK);
  StridedTensor expected(Element::kF32, call.o.shape());
  expected.Fill([&](const Indices& at) { return call.o.At(at); });
  const double bad_scale = std::nan("");
  call.score.scale = &bad_scale;
  call.ExpectRefused(HEED_INVALID_ARGUMENT, {"scale"});
  call.exec.kernel = "no such kernel";
  call.score.scale = nullptr;
  EXPECT_NE(call.Run(), HEED_OK);
  call.exec.kernel = nullptr;
  ASSERT_EQ(call.Run(), HEED_OK);
  ExpectSameValues(expected, call.o);
}

// vllm-project/vllm#58131: an accepted argument has effect or is refused.
TEST(Faults, B195_ForcedKernelIsTheOneThatRuns) {
  AttentionCall call(Element::kF32, {1, 4, 1, 8}, {1, 512, 1, 8}, {1, 512, 1, 8});
  call.FillNormal(7);
  call.OnEveryKernel([&] {
    heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
    ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK);
    EXPECT_STREQ(plan.kernel_id, call.exec.kernel);
  });
}

// microsoft/onnxruntime#26262: gradients need lse; asking without it names the argument.
TEST(Faults, B220_OptionalOutputsWorkOrAreNamed) {
  AttentionCall call(Element::kF32, {1, 4, 1, 8}, {1, 4, 1, 8}, {1, 4, 1, 8});
  call.FillNormal(8);
  call.args.lse = nullptr;
  ASSERT_EQ(heed_forward(&call.args), HEED_OK);
  heed_backward_args_t backward = HEED_BACKWARD_ARGS_INIT;
  backward.forward = &call.args;
  backward.d_o = call.o.abi();
  backward.dq = call.q.abi();
  backward.dk = call.k.abi();
  backward.dv = call.v.abi();
  EXPECT_EQ(heed_backward(&backward), HEED_INVALID_ARGUMENT);
  EXPECT_NE(std::string(heed_last_error()).find("lse"), std::string::npos) << heed_last_error();
}

}  // namespace
}  // namespace heed::test
