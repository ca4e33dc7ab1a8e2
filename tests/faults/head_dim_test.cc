// Head dims, GQA groups and tails of tiles.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "support/attention_call.h"

namespace heed::test {
namespace {

// triton-lang/triton#621: only the upper half of the channels carries signal.
TEST(Faults, B052_AllChannelsCount) {
  AttentionCall call(Element::kF32, {1, 1, 1, 128}, {1, 2, 1, 128}, {1, 2, 1, 1});
  call.q.Fill([](const Indices& at) { return at[3] >= 64 ? 1.0 : 0.0; });
  call.k.Fill([](const Indices& at) { return at[1] == 0 ? 1.0 : 0.0; });
  call.v.Fill([](const Indices& at) { return at[1] == 0 ? 1.0 : 0.0; });
  const double weight = std::exp(64 / std::sqrt(128.0));
  call.OnEveryKernel([&] { EXPECT_NEAR(call.o.At({0, 0, 0, 0}), weight / (1 + weight), 1e-5); });
}

TEST(Faults, B052_SweepOfHeadDims) {
  for (const int head_dim : {1,  2,  3,  5,  7,   8,   16,  24,  32,  33,  40, 64,
                             72, 80, 88, 96, 112, 120, 128, 160, 192, 224, 256}) {
    const std::string d = std::to_string(head_dim);
    ExpectCasePasses("fwd:b1:hq2:hkv1:sq19:skv37:d" + d + ":dv" + d + ":f32:fenced:s" + d);
    ExpectCasePasses("fwd:b1:hq2:hkv1:sq19:skv37:d" + d + ":dv" + d + ":f16:fenced:s" + d);
  }
}

// intel/ipex-llm#12619: padding of D must not change the default scale.
TEST(Faults, B053_DefaultScaleUsesTheTrueHeadDim) {
  AttentionCall call(Element::kF32, {1, 1, 1, 72}, {1, 2, 1, 72}, {1, 2, 1, 1});
  call.q.Fill([](const Indices&) { return 1.0; });
  call.k.Fill([](const Indices& at) { return at[1] == 1 ? 1.0 / std::sqrt(72.0) : 0.0; });
  call.v.Fill([](const Indices& at) { return static_cast<double>(at[1]); });
  // q.k = {0, sqrt(72)}, so the weights are {1, e} / (1 + e).
  call.OnEveryKernel([&] {
    EXPECT_NEAR(call.o.At({0, 0, 0, 0}), std::exp(1.0) / (1 + std::exp(1.0)), 1e-6);
  });
}

// Dao-AILab/flash-attention#753
TEST(Faults, B056_HeadDimOfVMayDiffer) {
  AttentionCall call(Element::kF32, {1, 2, 1, 8}, {1, 1, 1, 8}, {1, 1, 1, 16});
  call.FillNormal(1);
  call.OnEveryKernel([&] {
    for (std::int64_t dim = 0; dim < 16; ++dim) {
      EXPECT_NEAR(call.o.At({0, 1, 0, dim}), call.v.At({0, 0, 0, dim}), 1e-6);
    }
  });
  ExpectCasePasses("fwd:b1:hq2:hkv2:sq9:skv21:d8:dv16:f32:s1");
}

// ggml-org/llama.cpp#20375: odd head dims run on the same rows; a substitute would be visible.
TEST(Faults, B057_OddHeadDimsAreNoFallback) {
  for (const std::int64_t head_dim : {72, 88, 128}) {
    AttentionCall call(Element::kF16, {1, 64, 1, head_dim}, {1, 64, 1, head_dim},
                       {1, 64, 1, head_dim});
    call.exec.forbid_slower = HEED_ON;
    heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
    ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
    EXPECT_EQ(plan.is_slower_substitute, HEED_OFF);
    EXPECT_NE(std::string(plan.kernel_id), "");
  }
}

// fla-org/flash-linear-attention#1029
TEST(Faults, B120_HeadsThatDoNotDivideAreRefused) {
  const std::int64_t bad[][2] = {{33, 2}, {3, 2}, {2, 4}};
  for (const auto& [q_heads, kv_heads] : bad) {
    AttentionCall call(Element::kF32, {1, 4, q_heads, 8}, {1, 4, kv_heads, 8}, {1, 4, kv_heads, 8});
    call.FillNormal(2);
    call.ExpectRefused(HEED_INVALID_ARGUMENT,
                       {std::to_string(q_heads), std::to_string(kv_heads), "must divide"});
  }
}

// ggml-org/llama.cpp#19115: head h reads KV head h / (hq / hkv), for every ratio.
TEST(Faults, B121_EveryGroupReadsItsOwnKvHead) {
  for (const std::int64_t group : {1, 2, 3, 5, 6, 7, 9, 12, 16}) {
    for (const std::int64_t kv_heads : {1, 2, 3}) {
      AttentionCall call(Element::kF32, {1, 5, group * kv_heads, 16}, {1, 9, kv_heads, 16},
                         {1, 9, kv_heads, 16});
      call.FillNormal(3);
      call.v.Fill([](const Indices& at) { return static_cast<double>(at[2] + 1); });
      call.OnEveryKernel([&] {
        ForEachIndex(call.o.shape(), [&](const Indices& at) {
          EXPECT_NEAR(call.o.At(at), static_cast<double>(at[2] / group + 1), 1e-6);
        });
      });
    }
  }
}

// Dao-AILab/flash-attention#2438: every (head dim, ratio, type) of the table has a kernel.
TEST(Faults, B123_DispatchTableHasNoHoles) {
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    for (std::int64_t head_dim = 1; head_dim <= 576; ++head_dim) {
      for (const std::int64_t group : {1, 3, 8, 12}) {
        AttentionCall call(element, {1, 1, group, head_dim}, {1, 1, 1, head_dim},
                           {1, 1, 1, head_dim});
        heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
        ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK)
            << "D = " << head_dim << ", G = " << group << ": " << heed_last_error();
      }
    }
  }
}

// ggml-org/llama.cpp#7465
TEST(Faults, B140_EveryQueryCountOfATile) {
  for (int q_len = 1; q_len <= 67; ++q_len) {
    const std::string id = std::to_string(q_len);
    ExpectCasePasses("fwd:b3:hq1:hkv1:sq" + id + ":skv40:d16:dv16:f32:fenced:s" + id);
  }
}

// triton-lang/kernels#6
TEST(Faults, B142_OneQueryTwentyKeys) {
  ExpectCasePasses("fwd:b4:hq32:hkv32:sq1:skv20:d128:dv128:f32:s1");
  ExpectCasePasses("fwd:b4:hq32:hkv32:sq1:skv20:d128:dv128:f16:s2");
}

// FluxML/NNkernels.jl#16: K and V end where the next page cannot be read.
TEST(Faults, B145_NothingIsReadPastTheLastKey) {
  for (const int kv_len : {3, 27, 51, 67, 131, 259}) {
    const std::string id = std::to_string(kv_len);
    for (const char* element : {"f32", "f16", "bf16"}) {
      ExpectCasePasses("fwd:b1:hq1:hkv1:sq5:skv" + id + ":d13:dv9:" + element + ":fenced:s" + id);
    }
  }
}

// microsoft/onnxruntime#28376: no key count may depend on the bias row's alignment.
TEST(Faults, B070_EveryKeyCountWithBias) {
  for (int kv_len = 1; kv_len <= 33; ++kv_len) {
    const std::string id = std::to_string(kv_len);
    ExpectCasePasses("fwd:b1:hq2:hkv1:sq3:skv" + id + ":d8:dv8:f16:bias-bhqk-f16:fenced:s" + id);
  }
}

// facebookresearch/xformers#813
TEST(Faults, B071_BiasOfOddWidth) {
  ExpectCasePasses("fwd:b1:hq16:hkv16:sq43:skv43:d32:dv32:f16:bias-1hqk-f16:s1");
}

}  // namespace
}  // namespace heed::test
