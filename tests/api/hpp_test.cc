// heed.hpp with exceptions.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "api/hpp_calls.h"

namespace heed::test {
namespace {

// The first query sees the first key alone; with equal scores the second sees the mean of both.
void ExpectCausalMean(const HppProblem& problem) {
  for (std::size_t index = 0; index < 12; ++index) {
    EXPECT_FLOAT_EQ(problem.o[index], problem.v[index]);
    EXPECT_FLOAT_EQ(problem.o[12 + index], (problem.v[index] + problem.v[12 + index]) / 2);
  }
}

TEST(Hpp, Forward) {
  HppProblem problem;
  forward(problem.Call());
  ExpectCausalMean(problem);
}

TEST(Hpp, FailuresThrowWithStatusAndMessage) {
  HppProblem problem;
  Forward call = problem.Call();
  call.score.softcap = -1.0;
  try {
    forward(call);
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), HEED_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(error.what()).rfind("score.softcap = -1", 0), 0u) << error.what();
  }
  EXPECT_EQ(try_forward(call), HEED_INVALID_ARGUMENT);
}

TEST(Hpp, TensorsCopyTheirShape) {
  std::vector<float> values(24);
  Tensor copy;
  EXPECT_FALSE(copy.present());
  EXPECT_EQ(copy.abi(), nullptr);
  {
    const Tensor original(values.data(), {1, 2, 3, 4});
    copy = original;
    EXPECT_NE(copy.abi()->shape, original.abi()->shape);
  }
  EXPECT_EQ(copy.abi()->shape[3], 4);
  EXPECT_EQ(copy.abi()->strides, nullptr);
  EXPECT_EQ(copy.abi()->dtype.bits, 32);
}

TEST(Hpp, TensorsThatCannotBeAreRefused) {
  HppProblem problem;
  Forward call = problem.Call();
  call.q = Tensor(std::span<float>(problem.q).first(23), {1, 2, 3, 4});
  EXPECT_THROW(forward(call), Error);
  EXPECT_EQ(std::string(heed_last_error()).rfind("q.data = NULL", 0), 0u) << heed_last_error();
  call.q = Tensor(problem.q.data(), {1, 1, 1, 2, 3, 4});
  EXPECT_THROW(forward(call), Error);
  EXPECT_EQ(std::string(heed_last_error()).rfind("q.ndim = 6", 0), 0u) << heed_last_error();
}

TEST(Hpp, PlanExplainInfo) {
  HppProblem problem;
  const heed_plan_info_t chosen = plan(problem.Call());
  EXPECT_EQ(std::string(chosen.kernel_id).rfind("cpu.", 0), 0u);
  EXPECT_NE(explain(problem.Call()).find(chosen.kernel_id), std::string::npos);
  EXPECT_NE(info().find(heed_version()), std::string::npos);
  EXPECT_EQ(info(HEED_INFO_JSON).front(), '{');
  EXPECT_EQ(info(HEED_INFO_JSON).back(), '}');
}

TEST(Hpp, WorkspaceServesACall) {
  HppProblem problem;
  Forward call = problem.Call();
  Workspace first(plan(call).workspace_bytes);
  const Workspace workspace = std::move(first);
  EXPECT_EQ(first.data(), nullptr);
  ASSERT_NE(workspace.data(), nullptr);
  workspace.lend_to(&call.exec);
  forward(call);
  ExpectCausalMean(problem);
}

TEST(Hpp, Backward) {
  HppProblem problem;
  Forward call = problem.Call();
  forward(call);
  problem.d_o.fill(1.0f);
  backward({.forward = call,
            .d_o = HppProblem::View(problem.d_o),
            .dq = HppProblem::View(problem.dq),
            .dk = HppProblem::View(problem.dk),
            .dv = HppProblem::View(problem.dv),
            .exec = Exec(HEED_BACKEND_REFERENCE)});
  for (std::size_t index = 0; index < 12; ++index) {
    EXPECT_FLOAT_EQ(problem.dv[index], 1.5f);
    EXPECT_FLOAT_EQ(problem.dv[12 + index], 0.5f);
  }
}

TEST(Hpp, Sessions) {
  SessionConfig config;
  config.num_sequences = config.num_q_heads = config.num_kv_heads = 1;
  config.head_dim = config.head_dim_v = config.capacity_tokens = 64;
  const Session session(config);
  EXPECT_NE(session.handle(), nullptr);
  config.head_dim = 0;
  try {
    const Session none(config);
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), HEED_INVALID_ARGUMENT);
  }
  EXPECT_EQ(Session().handle(), nullptr);
}

}  // namespace
}  // namespace heed::test
