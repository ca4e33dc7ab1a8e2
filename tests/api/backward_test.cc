// heed_backward: the oracle and the CPU run it, bad gradients are named.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "api/forward_call.h"

namespace heed::test {
namespace {

struct BackwardCall {
  BackwardCall() {
    args.forward = &forward.args;
    args.d_o = &d_o.abi;
    args.dq = &dq.abi;
    args.dk = &dk.abi;
    args.dv = &dv.abi;
    args.exec = &exec;
    exec.backend = HEED_BACKEND_REFERENCE;
    for (int index = 0; index < 2 * 3 * 4 * 6; ++index) d_o.data<float>()[index] = 1.0f;
    EXPECT_EQ(forward.Run(), HEED_OK) << heed_last_error();
  }
  heed_status_t Run() const { return heed_backward(&args); }

  ForwardCall forward;
  OwnedTensor d_o{kF32, {2, 3, 4, 6}};
  OwnedTensor d_lse{kF32, {2, 4, 3}};
  OwnedTensor dq{kF32, {2, 3, 4, 8}, 0xAB};
  OwnedTensor dk{kF32, {2, 5, 2, 8}, 0xAB};
  OwnedTensor dv{kF32, {2, 5, 2, 6}, 0xAB};
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_backward_args_t args = HEED_BACKWARD_ARGS_INIT;
};

void ExpectRefused(const std::function<void(BackwardCall&)>& spoil, heed_status_t status,
                   const std::string& fragment) {
  BackwardCall call;
  spoil(call);
  const auto before = call.dq.bytes();
  EXPECT_STREQ(heed_status_name(call.Run()), heed_status_name(status)) << heed_last_error();
  EXPECT_NE(std::string(heed_last_error()).find(fragment), std::string::npos)
      << "message:  " << heed_last_error() << "\nfragment: " << fragment;
  EXPECT_EQ(call.dq.bytes(), before);
}

void ExpectInvalid(const std::function<void(BackwardCall&)>& spoil, const std::string& fragment) {
  ExpectRefused(spoil, HEED_INVALID_ARGUMENT, fragment);
}

// With all scores equal each of the 5 keys has probability 1/5, so each element of dV collects 1/5
// from G = 2 heads x 3 queries.
TEST(Backward, RunsOnTheReference) {
  BackwardCall call;
  ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
  for (int index = 0; index < 2 * 5 * 2 * 6; ++index) {
    EXPECT_NEAR(call.dv.data<float>()[index], 2 * 3 / 5.0, 1e-6);
  }
  for (int index = 0; index < 2 * 3 * 4 * 8; ++index) EXPECT_EQ(call.dq.data<float>()[index], 0.0f);
}

// The gradients of one call on the CPU with this many threads.
std::vector<std::vector<std::uint64_t>> CpuGradients(std::int32_t num_threads) {
  BackwardCall call;
  call.exec.backend = HEED_BACKEND_CPU;
  call.exec.num_threads = num_threads;
  EXPECT_EQ(call.Run(), HEED_OK) << heed_last_error();
  for (int index = 0; index < 2 * 5 * 2 * 6; ++index) {
    EXPECT_NEAR(call.dv.data<float>()[index], 2 * 3 / 5.0, 1e-6);
  }
  return {call.dq.bytes(), call.dk.bytes(), call.dv.bytes()};
}

TEST(Backward, CpuGivesTheSameBitsForEveryNumberOfThreads) {
  const auto one = CpuGradients(1);
  EXPECT_EQ(CpuGradients(2), one);
  EXPECT_EQ(CpuGradients(5), one);
}

TEST(Backward, RequiredArguments) {
  EXPECT_EQ(heed_backward(nullptr), HEED_INVALID_ARGUMENT);
  ExpectInvalid([](BackwardCall& call) { call.args.forward = nullptr; }, "forward = NULL");
  ExpectInvalid([](BackwardCall& call) { call.forward.args.lse = nullptr; }, "lse = NULL");
  ExpectInvalid([](BackwardCall& call) { call.args.d_o = nullptr; }, "d_o = NULL");
  ExpectInvalid([](BackwardCall& call) { call.args.dq = nullptr; }, "dq = NULL");
  ExpectInvalid([](BackwardCall& call) { call.args.dk = nullptr; }, "dk = NULL");
  ExpectInvalid([](BackwardCall& call) { call.args.dv = nullptr; }, "dv = NULL");
  ExpectInvalid([](BackwardCall& call) { call.args.struct_size = 8; }, "args.struct_size = 8");
}

TEST(Backward, GradientsMatchTheirTensors) {
  ExpectInvalid([](BackwardCall& call) { call.dk.shape[1] = 4; },
                "dk.shape[1] (kv_len) = 4: must equal k.shape[1] (kv_len) = 5");
  ExpectInvalid([](BackwardCall& call) { call.dv.abi.dtype = kBF16; },
                "dv.dtype = bf16: must equal v.dtype = f32");
  ExpectInvalid([](BackwardCall& call) { call.dq.strides[1] = 0; }, "dq.strides[1] = 0");
  ExpectInvalid([](BackwardCall& call) { call.dq.abi.data = call.forward.q.abi.data; },
                "dq: an output must not overlap q");
  ExpectInvalid(
      [](BackwardCall& call) {
        call.d_lse.shape[2] = 2;
        call.args.d_lse = &call.d_lse.abi;
      },
      "d_lse.shape[2] (q_len) = 2: must equal lse.shape[2] (q_len) = 3");
}

TEST(Backward, ScoreGradientsNeedTheirInputs) {
  OwnedTensor d_bias(kF32, {3, 5});
  OwnedTensor d_sinks(kF32, {4});
  ExpectInvalid([&](BackwardCall& call) { call.args.d_bias = &d_bias.abi; },
                "d_bias: must be NULL without score.bias");
  ExpectInvalid([&](BackwardCall& call) { call.args.d_sinks = &d_sinks.abi; },
                "d_sinks: must be NULL without score.sinks");
}

TEST(Backward, BiasGradientIsReducedOverBroadcastAxes) {
  OwnedTensor bias(kF32, {4, 3, 5});
  bias.strides[0] = 0;
  OwnedTensor d_bias(kF32, {1, 3, 5}, 0xAB);
  const auto use = [&](BackwardCall& call) {
    call.forward.score.bias = &bias.abi;
    call.args.d_bias = &d_bias.abi;
  };
  {
    BackwardCall call;
    use(call);
    ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
    for (int index = 0; index < 15; ++index) {
      EXPECT_NEAR(d_bias.data<float>()[index], 0.0f, 1e-6) << index;
    }
  }
  d_bias = OwnedTensor(kF32, {4, 3, 5});
  ExpectInvalid(use, "d_bias.shape[0] (num_q_heads) = 4: must be 1 as score.bias.strides[0] = 0");
}

}  // namespace
}  // namespace heed::test
