// Decode calls whose kernels come from a pack, where no compiler can be had. One process, one test:
// the library looks for packs when it needs its first kernel.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "heed/heed.h"
// clang-format off
#include "gpu/cuda_rows.h"
#include "decode/decode_instance.h"
#include "gpu/decode_call.h"
#include "gpu/decode_rows.h"
// clang-format on

namespace heed::test {
namespace {

// On the host for the oracle, and on the GPU.
struct Call {
  explicit Call(const DecodeCase& c) : instance(c), on_gpu(instance.args) {}
  DecodeInstance instance;
  DeviceDecodeCall on_gpu;
};

// A step of 14 heads, pages of int8 rows of 256, and rows of 96: what packs hold and what they do
// not unless a call names it.
std::vector<DecodeCase> Cases() {
  DecodeCase step;
  step.element = Element::kBF16;
  step.num_kv_heads = 14;
  step.slots = 1024;
  step.lengths = {1000};
  step.causal = HEED_CAUSAL_ON;
  DecodeCase wide;
  wide.element = Element::kF16;
  wide.batch = 2;
  wide.num_kv_heads = 2;
  wide.group = 4;
  wide.head_dim = wide.head_dim_v = 256;
  wide.page_slots = 16;
  wide.format = HEED_KV_INT8;
  wide.lengths = {300, 77};
  DecodeCase odd = step;
  odd.head_dim = odd.head_dim_v = 96;
  odd.num_kv_heads = 3;
  odd.group = 5;
  odd.softcap = 20.0;
  return {step, wide, odd};
}

bool IsHopper() {
  DecodeCase small;
  small.element = Element::kF16;
  small.lengths = {1};
  DecodeInstance instance(small);
  DeviceDecodeCall call(instance.args);
  call.exec().kernel = "cuda.sm90.decode.f16.d64.q8k128";
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  return heed_plan(HEED_OP_DECODE, call.args(), &plan) == HEED_OK;
}

TEST(GpuDecodePack, ServesCallsWithoutNvrtc) {
  if (!IsHopper()) GTEST_SKIP() << "NOT TESTED: the pack is for Hopper";
  std::vector<std::unique_ptr<Call>> calls;
  std::vector<const heed_decode_args_t*> named;
  for (const DecodeCase& c : Cases()) {
    calls.push_back(std::make_unique<Call>(c));
    named.push_back(calls.back()->on_gpu.args());
  }
  const std::string path = testing::TempDir() + "heed_gpu_decode_pack_test.heedpack";
  setenv("HEED_CACHE", "0", 1);
  heed_pack_args_t order = HEED_PACK_ARGS_INIT;
  order.path = path.c_str();
  order.archs = "90a";
  order.decode_calls = named.data();
  order.num_decode_calls = static_cast<int64_t>(named.size());
  ASSERT_EQ(heed_pack_build(&order), HEED_OK) << heed_last_error();

  setenv("HEED_PACK", path.c_str(), 1);
  setenv("HEED_NVRTC", "/nowhere/libnvrtc.so", 1);
  for (const std::unique_ptr<Call>& call : calls) {
    SCOPED_TRACE(Describe(call->instance.decode_case()));
    ASSERT_EQ(heed_decode(call->on_gpu.args()), HEED_OK) << heed_last_error();
    ASSERT_EQ(call->on_gpu.Finish(), "");
    const DecodeResults got = CollectResults(call->instance);
    call->instance.Restore();
    EXPECT_EQ(Compare(got, OracleResults(call->instance),
                      call->instance.ComputeBounds(DecodeRounding::kTensorCores)),
              "");
  }
  // What no call named is not there, and nothing can compile it.
  DecodeCase other = Cases()[2];
  other.softcap = 0.0;
  Call unnamed(other);
  EXPECT_EQ(heed_decode(unnamed.on_gpu.args()), HEED_UNAVAILABLE);
  EXPECT_NE(std::string(heed_last_error()).find("NVRTC"), std::string::npos) << heed_last_error();
}

}  // namespace
}  // namespace heed::test
