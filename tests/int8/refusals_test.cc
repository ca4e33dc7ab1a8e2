// What a call on int8 tensors is refused for, by name, rule and value.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "int8/int8_call.h"

namespace heed::test {
namespace {

Int8Case Small() {
  Int8Case spec;
  spec.batch = 2;
  spec.q_len = 5;
  spec.kv_len = 7;
  spec.num_kv_heads = 2;
  spec.group = 2;
  spec.head_dim = 8;
  spec.head_dim_v = 6;
  spec.q_block = spec.k_block = 2;
  spec.v_block = 0;
  return spec;
}

void ExpectRefused(const std::function<void(Int8Call&)>& spoil, heed_status_t status,
                   const std::string& fragment) {
  Int8Call call(Small(), 1);
  spoil(call);
  const auto before = call.o.bytes();
  EXPECT_STREQ(heed_status_name(heed_forward(&call.args)), heed_status_name(status))
      << heed_last_error();
  EXPECT_NE(std::string(heed_last_error()).find(fragment), std::string::npos)
      << "message:  " << heed_last_error() << "\nfragment: " << fragment;
  EXPECT_EQ(call.o.bytes(), before);
}

void ExpectInvalid(const std::function<void(Int8Call&)>& spoil, const std::string& fragment) {
  ExpectRefused(spoil, HEED_INVALID_ARGUMENT, fragment);
}

TEST(Int8Refusals, TheSmallCallRuns) {
  Int8Call call(Small(), 1);
  EXPECT_EQ(heed_forward(&call.args), HEED_OK) << heed_last_error();
}

TEST(Int8Refusals, DtypesAndTheStructGoTogether) {
  ExpectInvalid([](Int8Call& c) { c.args.int8 = nullptr; }, "int8 = NULL: is required");
  ExpectInvalid([](Int8Call& c) { c.q.abi.dtype = kU8; }, "q.dtype");
  ExpectInvalid([](Int8Call& c) { c.v.abi.dtype = kU8; }, "v.dtype");
  ExpectInvalid([](Int8Call& c) { c.o.abi.dtype = kI32; }, "o.dtype");
  ExpectInvalid([](Int8Call& c) { c.int8.struct_size = 8; }, "int8.struct_size");
}

TEST(Int8Refusals, ScalesHaveTheirShape) {
  ExpectInvalid([](Int8Call& c) { c.int8.q_block_rows = 3; }, "int8.q_scales.shape[2]");
  ExpectInvalid([](Int8Call& c) { c.int8.k_block_rows = 0; }, "int8.k_scales.shape[2]");
  ExpectInvalid([](Int8Call& c) { c.int8.v_block_rows = 1; }, "int8.v_scales.shape[2]");
  ExpectInvalid([](Int8Call& c) { c.int8.k_block_rows = -1; },
                "int8.k_block_rows = -1: must not be negative");
  ExpectInvalid([](Int8Call& c) { c.int8.k_scales = nullptr; },
                "int8.k_block_rows = 2: must be 0 without int8.k_scales");
  ExpectInvalid([](Int8Call& c) { c.int8.q_scales = c.int8.k_scales; }, "int8.q_scales.shape[1]");
  ExpectInvalid([](Int8Call& c) { c.q_scales.abi.dtype = kI32; }, "int8.q_scales.dtype");
}

TEST(Int8Refusals, ScalesAreFiniteAndNotNegative) {
  ExpectInvalid([](Int8Call& c) { c.q_scales.data<float>()[3] = -1.0f; },
                "int8.q_scales[0, 1, 0] = -1: must be finite and not negative");
  ExpectInvalid([](Int8Call& c) { c.k_scales.data<float>()[0] = INFINITY; },
                "int8.k_scales[0, 0, 0]");
  ExpectInvalid([](Int8Call& c) { c.v_scales.data<float>()[23] = NAN; }, "int8.v_scales[1, 1, 5]");
}

TEST(Int8Refusals, ScoresOfTheScalesFitFp32) {
  ExpectInvalid(
      [](Int8Call& c) {
        c.q_scales.data<float>()[1] = 1e20f;
        c.k_scales.data<float>()[2] = 1e20f;
      },
      "int8.q_scales up to 1e+20, int8.k_scales up to 1e+20 and score.scale = 0.05: their product "
      "must be at most 2^64");
  ExpectInvalid([](Int8Call& c) { c.spec.scale = -1e20; },
                "score.scale = -1e+20: their product must be at most 2^64");
}

TEST(Int8Refusals, EnumeratorsAreKnown) {
  ExpectInvalid([](Int8Call& c) { c.int8.softmax = static_cast<heed_int8_softmax_t>(2); },
                "int8.softmax");
  ExpectInvalid([](Int8Call& c) { c.int8.values = static_cast<heed_int8_values_t>(3); },
                "int8.values");
}

TEST(Int8Refusals, FeaturesWithoutAKernelAreUnsupported) {
  ExpectRefused([](Int8Call& c) { c.score.softcap = 5.0; }, HEED_UNSUPPORTED, "no score.softcap");
  ExpectRefused([](Int8Call& c) { c.score.dropout_p = 0.5; }, HEED_UNSUPPORTED,
                "no score.dropout_p");
  static OwnedTensor sinks(kF32, {4});
  ExpectRefused([](Int8Call& c) { c.score.sinks = &sinks.abi; }, HEED_UNSUPPORTED,
                "no score.sinks");
  ExpectRefused([](Int8Call& c) { c.int8.softmax = HEED_INT8_SOFTMAX_FIXED; }, HEED_UNSUPPORTED,
                "no int8.q_scales");
  ExpectRefused(
      [](Int8Call& c) {
        c.int8.softmax = HEED_INT8_SOFTMAX_FIXED;
        c.int8.q_scales = c.int8.k_scales = nullptr;
        c.int8.q_block_rows = c.int8.k_block_rows = 0;
        c.spec.scale = 5.0;
      },
      HEED_UNSUPPORTED, "scale from 2^-8 to 2");
}

// Keys and values broadcast by strides of 0 take no memory, but their packed form would.
TEST(Int8Refusals, PackedKeysFitAMemory) {
  ExpectRefused(
      [](Int8Call& c) {
        c.int8.k_scales = nullptr;
        c.int8.k_block_rows = 0;
        for (OwnedTensor* tensor : {&c.k, &c.v}) {
          tensor->shape[1] = std::int64_t{1} << 50;
          tensor->strides = {0, 0, 0, 1};
        }
      },
      HEED_UNSUPPORTED, "at most 2^50 bytes");
}

TEST(Int8Refusals, ThereAreNoGradients) {
  Int8Call call(Small(), 1);
  heed_backward_args_t args = HEED_BACKWARD_ARGS_INIT;
  args.forward = &call.args;
  args.d_o = &call.o.abi;
  args.dq = &call.q.abi;
  args.dk = &call.k.abi;
  args.dv = &call.v.abi;
  EXPECT_EQ(heed_backward(&args), HEED_INVALID_ARGUMENT);
  EXPECT_NE(std::string(heed_last_error()).find("int8 inputs have no gradients"),
            std::string::npos);
}

}  // namespace
}  // namespace heed::test
