// heed_forward on int8 tensors: every kernel and arithmetic against exact attention over what the
// integers stand for, within the bounds of docs/numerics.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "int8/int8_call.h"

namespace heed::test {
namespace {

constexpr heed_int8_values_t kAllValues[] = {HEED_INT8_VALUES_F32, HEED_INT8_VALUES_BF16,
                                             HEED_INT8_VALUES_U8};

bool HasMode(const cpu::Int8Kernel& kernel, heed_int8_values_t values) {
  return kernel.modes[values].weights != nullptr;
}

std::string Text(const Int8Case& c) {
  std::string text;
  for (const std::int64_t n :
       {c.batch, c.q_len, c.kv_len, c.num_kv_heads, c.group, c.head_dim, c.head_dim_v,
        c.window_left, c.window_right, c.q_block, c.k_block, c.v_block}) {
    text += std::to_string(n) + " ";
  }
  return text + (c.causal == HEED_CAUSAL_ON ? "causal " : "") +
         (c.alignment == HEED_ALIGN_TOP_LEFT ? "top-left " : "") + "scale " +
         std::to_string(c.scale) + " values " + std::to_string(c.values) + " o " +
         std::to_string(c.o_dtype.bits);
}

std::int64_t Pick(std::mt19937* random, std::initializer_list<std::int64_t> choices) {
  return choices.begin()[(*random)() % choices.size()];
}

Int8Case RandomCase(std::mt19937* random) {
  Int8Case c;
  c.batch = Pick(random, {1, 1, 2});
  c.q_len = Pick(random, {1, 3, 16, 47, 48, 50, 97});
  c.kv_len = Pick(random, {1, 2, 5, 64, 65, 127, 128, 131, 256, 300});
  c.num_kv_heads = Pick(random, {1, 1, 2});
  c.group = Pick(random, {1, 1, 2, 4, 5});
  c.head_dim = Pick(random, {1, 4, 7, 32, 64, 67});
  c.head_dim_v = Pick(random, {1, 8, 16, 33, 64, 80});
  c.causal = (*random)() % 3 == 0 ? HEED_CAUSAL_ON : HEED_CAUSAL_OFF;
  c.alignment = (*random)() % 2 == 0 ? HEED_ALIGN_BOTTOM_RIGHT : HEED_ALIGN_TOP_LEFT;
  c.window_left = Pick(random, {-1, -1, 0, 20, 100});
  c.window_right = c.causal == HEED_CAUSAL_ON ? -1 : Pick(random, {-1, -1, 0, 30});
  c.q_block = Pick(random, {kNoScales, 0, 1, 16});
  c.k_block = Pick(random, {kNoScales, 0, 1, 16});
  c.v_block = Pick(random, {kNoScales, 0, 1, 16});
  // Scores of a few units, and of hundreds.
  const double spread = 128.0 * 128.0 / 3.0 * std::sqrt(static_cast<double>(c.head_dim));
  c.scale = static_cast<double>(Pick(random, {-3, 0, 1, 4, 300})) / spread;
  const heed_dtype_t dtypes[] = {kF32, kF32, kBF16, kF16};
  c.o_dtype = dtypes[(*random)() % 4];
  return c;
}

TEST(Int8Modes, EveryKernelAndArithmeticIsWithinItsBound) {
  std::mt19937 random(20);
  for (unsigned n = 0; n < 60; ++n) {
    Int8Case spec = RandomCase(&random);
    for (const NamedInt8Kernel& named : Int8KernelsHere()) {
      if (named.is_emulated && n % 3 != 0) continue;
      for (const heed_int8_values_t values : kAllValues) {
        if (!HasMode(*named.kernel, values)) continue;
        spec.values = values;
        Int8Call call(spec, n);
        RunOn(*named.kernel, &call, 1);
        EXPECT_LE(WorstError(&call), 1.0) << named.name << " case " << n << ": " << Text(spec);
        Int8Call again(spec, n);
        RunOn(*named.kernel, &again, 3);
        EXPECT_EQ(again.o.bytes(), call.o.bytes()) << named.name << ": " << Text(spec);
        EXPECT_EQ(again.lse.bytes(), call.lse.bytes()) << named.name << ": " << Text(spec);
      }
    }
  }
}

// Maxima that rise from block to block by less than weights may exceed 1, and by much more; maxima
// that only fall.
TEST(Int8Modes, MaximaMayRiseAndFall) {
  constexpr std::int64_t kNumKeys = 1000, kElements = 64;
  for (const int steps_between_ends : {-60, 12, 60, 400}) {
    Int8Case spec;
    spec.q_len = 50;
    spec.kv_len = kNumKeys;
    spec.head_dim = kElements;
    spec.head_dim_v = 48;
    spec.k_block = 1;
    // q and k are all 100 at the end where scores are large.
    spec.scale = std::abs(steps_between_ends) * 0.69 / (100.0 * 100.0 * kElements);
    for (const NamedInt8Kernel& named : Int8KernelsHere()) {
      for (const heed_int8_values_t values : kAllValues) {
        if (!HasMode(*named.kernel, values)) continue;
        spec.values = values;
        Int8Call call(spec, 5);
        std::fill_n(call.q.data<std::int8_t>(), spec.q_len * kElements, std::int8_t{100});
        std::fill_n(call.k_scales.data<float>(), kNumKeys, 1.0f);
        for (std::int64_t key = 0; key < kNumKeys; ++key) {
          const std::int64_t rank = steps_between_ends > 0 ? key : kNumKeys - 1 - key;
          std::fill_n(call.k.data<std::int8_t>() + key * kElements, kElements,
                      static_cast<std::int8_t>(100 * rank / (kNumKeys - 1)));
        }
        RunOn(*named.kernel, &call, 1);
        EXPECT_LE(WorstError(&call), 1.0)
            << named.name << " " << steps_between_ends << ": " << Text(spec);
      }
    }
  }
}

// The fixed-point softmax with bounds, groups and scales per channel: the same bits everywhere.
TEST(Int8Modes, TheFixedSoftmaxHasTheSameBitsOnEveryKernel) {
  std::mt19937 random(21);
  const cpu::Int8Kernel& generic = *cpu::FindInt8Kernel(core::CpuTarget::kGeneric);
  for (unsigned n = 0; n < 30; ++n) {
    Int8Case spec = RandomCase(&random);
    spec.softmax = HEED_INT8_SOFTMAX_FIXED;
    spec.q_block = spec.k_block = kNoScales;
    if (spec.v_block > 0) spec.v_block = 0;
    spec.scale = n % 2 == 0 ? 1.0 / 256.0 : 0.1;
    Int8Call expected(spec, n);
    RunOn(generic, &expected, 1);
    for (const NamedInt8Kernel& named : Int8KernelsHere()) {
      Int8Call call(spec, n);
      RunOn(*named.kernel, &call, 2);
      EXPECT_EQ(call.o.bytes(), expected.o.bytes()) << named.name << ": " << Text(spec);
      EXPECT_EQ(call.lse.bytes(), expected.lse.bytes()) << named.name << ": " << Text(spec);
    }
    // Its own bound is tested in cpu/int8_forward_test.cc; here that bounds hide the right keys:
    // the float softmax with a bound of 1 % and the steps of Q16.16 covers it.
    Int8Case loose = spec;
    loose.values = HEED_INT8_VALUES_U8;
    Int8Call same(loose, n);
    RunOn(generic, &same, 1);
    EXPECT_EQ(same.o.bytes(), expected.o.bytes()) << "finer than asked: " << Text(spec);
    EXPECT_LE(WorstError(&same), 4.0) << Text(spec);
  }
}

// The public call: planned row, reference backend, workspace of the caller, own pool of the caller.
TEST(Int8Modes, TheAbiRunsWhatThePlanSays) {
  Int8Case spec;
  spec.batch = 2;
  spec.q_len = spec.kv_len = 150;
  spec.num_kv_heads = 2;
  spec.group = 3;
  spec.head_dim = spec.head_dim_v = 64;
  spec.causal = HEED_CAUSAL_ON;
  spec.q_block = spec.k_block = 1;
  spec.v_block = 0;
  spec.scale = 2e-4;
  for (const heed_int8_values_t values : kAllValues) {
    spec.values = values;
    Int8Call call(spec, 4);
    heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
    ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
    EXPECT_NE(std::string(plan.kernel_id).find(".forward.i8."), std::string::npos);
    EXPECT_GT(plan.num_tasks, 1);
    ASSERT_EQ(heed_forward(&call.args), HEED_OK) << heed_last_error();
    EXPECT_LE(WorstError(&call), 1.0) << plan.kernel_id << " values " << values;

    Int8Call with_workspace(spec, 4);
    std::vector<std::uint64_t> memory(plan.workspace_bytes / 8 + 16, ~std::uint64_t{0});
    void* aligned = memory.data();
    std::size_t space = memory.size() * 8;
    ASSERT_NE(std::align(64, plan.workspace_bytes, aligned, space), nullptr);
    with_workspace.exec.workspace = aligned;
    with_workspace.exec.workspace_bytes = plan.workspace_bytes;
    ASSERT_EQ(heed_forward(&with_workspace.args), HEED_OK) << heed_last_error();
    EXPECT_EQ(with_workspace.o.bytes(), call.o.bytes());

    Int8Call reference(spec, 4);
    reference.exec.backend = HEED_BACKEND_REFERENCE;
    ASSERT_EQ(heed_forward(&reference.args), HEED_OK) << heed_last_error();
    reference.spec.values = HEED_INT8_VALUES_F32;
    EXPECT_LE(WorstError(&reference), 0.5);
  }
}

// Scales of channels are prepared with the keys, of which there are none.
TEST(Int8Modes, WithoutKeysRowsAreZeroWhateverTheWorkspaceHolds) {
  for (const heed_int8_softmax_t softmax : {HEED_INT8_SOFTMAX_FLOAT, HEED_INT8_SOFTMAX_FIXED}) {
    Int8Case spec;
    spec.q_len = 50;
    spec.kv_len = 0;
    spec.softmax = softmax;
    spec.v_block = 0;
    if (softmax == HEED_INT8_SOFTMAX_FIXED) spec.q_block = spec.k_block = kNoScales;
    Int8Call call(spec, 1);
    heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
    ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
    std::vector<std::uint64_t> memory(plan.workspace_bytes / 8 + 16, ~std::uint64_t{0});
    void* aligned = memory.data();
    std::size_t space = memory.size() * 8;
    ASSERT_NE(std::align(64, plan.workspace_bytes, aligned, space), nullptr);
    call.exec.workspace = aligned;
    call.exec.workspace_bytes = plan.workspace_bytes;
    ASSERT_EQ(heed_forward(&call.args), HEED_OK) << heed_last_error();
    const float* o = call.o.data<float>();
    for (std::int64_t n = 0; n < spec.q_len * spec.head_dim_v; ++n) ASSERT_EQ(o[n], 0.0f) << n;
  }
}

TEST(Int8Modes, ExplainSaysHowIntegersAreRead) {
  Int8Case spec;
  spec.q_block = 16;
  spec.k_block = spec.v_block = 0;
  spec.values = HEED_INT8_VALUES_U8;
  spec.o_dtype = kBF16;
  const Int8Call call(spec, 1);
  char text[16384];
  ASSERT_EQ(heed_explain(HEED_OP_FORWARD, &call.args, text, sizeof text, nullptr), HEED_OK);
  EXPECT_NE(std::string(text).find("int8: float softmax, P V at least u8, o bf16, q scales per 16 "
                                   "rows, k scales per head, v scales per channel\n"),
            std::string::npos)
      << text;
}

// Rows of one interleaved buffer, and a scale for all by strides of 0.
TEST(Int8Modes, StridesOfTensorsAndScalesAreFollowed) {
  Int8Case spec;
  spec.q_len = spec.kv_len = 70;
  spec.num_kv_heads = 2;
  spec.head_dim = spec.head_dim_v = 32;
  spec.q_block = spec.v_block = 0;
  spec.scale = 1e-3;
  Int8Call call(spec, 9);
  Int8Call shared(spec, 9);
  for (std::int64_t n = 0; n < 2 * 32; ++n) call.v_scales.data<float>()[n] = 0.75f;
  for (std::int64_t n = 0; n < 2; ++n) call.q_scales.data<float>()[n] = 0.5f;
  shared.v_scales.data<float>()[0] = 0.75f;
  shared.q_scales.data<float>()[0] = 0.5f;
  shared.v_scales.strides = {0, 0, 0};
  shared.q_scales.strides = {0, 0, 0};
  shared.q_scales.abi.strides = shared.q_scales.strides.data();
  shared.v_scales.abi.strides = shared.v_scales.strides.data();

  // k and v side by side: [token][head][k 32, v 32].
  OwnedTensor both(kI8, {1, 70, 2, 64});
  for (std::int64_t row = 0; row < 70 * 2; ++row) {
    std::memcpy(both.data<std::int8_t>() + row * 64, call.k.data<std::int8_t>() + row * 32, 32);
    std::memcpy(both.data<std::int8_t>() + row * 64 + 32, call.v.data<std::int8_t>() + row * 32,
                32);
  }
  OwnedTensor* halves[] = {&shared.k, &shared.v};
  for (int n = 0; n < 2; ++n) {
    halves[n]->strides = {70 * 128, 128, 64, 1};
    halves[n]->abi.strides = halves[n]->strides.data();
    halves[n]->abi.data = both.data<std::int8_t>() + 32 * n;
  }
  ASSERT_EQ(heed_forward(&call.args), HEED_OK) << heed_last_error();
  ASSERT_EQ(heed_forward(&shared.args), HEED_OK) << heed_last_error();
  EXPECT_LE(WorstError(&call), 1.0);
  EXPECT_EQ(shared.o.bytes(), call.o.bytes());
}

// Scales whose products are ordinary though they are not, and keys from 1 to 2^-120 of the largest.
TEST(Int8Modes, UnitsOfScalesDoNotMatter) {
  Int8Case spec;
  spec.batch = 2;
  spec.q_len = spec.kv_len = 140;
  spec.num_kv_heads = 2;
  spec.head_dim = spec.head_dim_v = 32;
  spec.causal = HEED_CAUSAL_ON;
  spec.q_block = 1;
  spec.scale = 2e-4;
  for (const double shift : {-118.0, -60.0, 60.0, 115.0}) {
    for (const std::int64_t k_block : {std::int64_t{0}, std::int64_t{1}}) {
      for (const NamedInt8Kernel& named : Int8KernelsHere()) {
        spec.k_block = k_block;
        Int8Call call(spec, 3);
        Int8Call moved(spec, 3);
        const auto factor = static_cast<float>(std::exp2(shift));
        for (std::int64_t n = 0; n < 2 * 2 * 140; ++n) moved.q_scales.data<float>()[n] *= factor;
        for (std::int64_t n = 0; n < 2 * 2 * (k_block == 0 ? 1 : 140); ++n) {
          moved.k_scales.data<float>()[n] /= factor;
          if (k_block == 1 && n % 3 == 1) {
            const auto smaller = static_cast<float>(std::exp2(-(n % 120)));
            call.k_scales.data<float>()[n] *= smaller;
            // Not below the smallest number.
            if (shift < 0.0) moved.k_scales.data<float>()[n] *= smaller;
          }
        }
        RunOn(*named.kernel, &moved, 1);
        EXPECT_LE(WorstError(&moved), 1.0) << named.name << " 2^" << shift << ": " << Text(spec);
        if (shift > 0.0) continue;
        RunOn(*named.kernel, &call, 1);
        EXPECT_LE(WorstError(&call), 1.0) << named.name << ": " << Text(spec);
        EXPECT_EQ(moved.o.bytes(), call.o.bytes()) << named.name << " 2^" << shift;
      }
    }
  }
}

// What the comparison would miss if it could not fail.
TEST(Int8Modes, PlantedFaultsAreAboveTheBound) {
  Int8Case spec;
  spec.q_len = spec.kv_len = 100;
  spec.head_dim = spec.head_dim_v = 64;
  spec.k_block = 1;
  spec.scale = 1e-4;
  for (const heed_int8_values_t values : kAllValues) {
    spec.values = values;
    Int8Call right(spec, 1);
    ASSERT_EQ(heed_forward(&right.args), HEED_OK);
    EXPECT_LE(WorstError(&right), 1.0);
    right.spec.causal = HEED_CAUSAL_ON;  // keys that should be hidden
    EXPECT_GT(WorstError(&right), 1.0) << values;
    Int8Call scaled(spec, 1);
    ASSERT_EQ(heed_forward(&scaled.args), HEED_OK);
    for (std::int64_t j = 0; j < 50; ++j) scaled.k_scales.data<float>()[j] *= 1.5f;
    EXPECT_GT(WorstError(&scaled), 1.0) << values;
  }
}

}  // namespace
}  // namespace heed::test
