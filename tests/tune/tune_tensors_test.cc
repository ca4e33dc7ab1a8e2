// Results that a row got wrong are refused, whatever the layout of the tensor.
#include "api/tune_tensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "api/host_session.h"
#include "api/owned_tensor.h"
#include "core/problems.h"

namespace heed::test {
namespace {

using core::tune::Result;

struct TuneTensorsTest : ::testing::Test {
  TuneTensorsTest() { problem.score.scale = 0.125; }
  // Makes the result tensor, as a row that computes 1 everywhere would leave it.
  void Start(const heed_tensor_t* like) {
    tensor = like;
    ASSERT_TRUE(tensors.AdoptResult(&tensor, Result::kOutput, problem).ok());
    ASSERT_NE(tensor, like);
    for (std::int64_t at = 0; at < kSpan; ++at) data()[at] = 1.0f;
    ASSERT_TRUE(tensors.KeepResults().ok());
  }
  float* data() const { return static_cast<float*>(tensor->data); }
  std::string Fault() {
    std::string fault;
    EXPECT_TRUE(tensors.CompareResults(problem, &fault).ok());
    return fault;
  }

  // [2, 3, 2, 4] with a gap of one element after each head, of which 2 * 3 * 2 * 5 - 1 are spanned.
  static constexpr std::int64_t kSpan = 59;
  core::ForwardProblem problem = DenseProblem(core::DType::kF32);
  api::HostSessionDevice device{problem.exec};
  api::TuneTensors tensors{&device};
  const heed_tensor_t* tensor = nullptr;
};

OwnedTensor Gapped() {
  OwnedTensor tensor(kF32, {2, 3, 2, 4});
  tensor.strides = {30, 10, 5, 1};
  tensor.abi.strides = tensor.strides.data();
  tensor.abi.data = nullptr;
  return tensor;
}

TEST_F(TuneTensorsTest, EqualResultsAgree) {
  const OwnedTensor like = Gapped();
  Start(&like.abi);
  EXPECT_EQ(Fault(), "");
  data()[4] = 7.0f;  // a gap: of no row
  EXPECT_EQ(Fault(), "");
}

TEST_F(TuneTensorsTest, EveryWrongElementIsSeen) {
  const OwnedTensor like = Gapped();
  Start(&like.abi);
  for (std::int64_t at = 0; at < kSpan; ++at) {
    if (at % 5 == 4) continue;
    data()[at] = 1.01f;
    EXPECT_NE(Fault().find("o: an element is 1.01 where the default row has 1"), std::string::npos)
        << at;
    data()[at] = 1.0f;
  }
}

TEST_F(TuneTensorsTest, WhatARowForgetsIsSeen) {
  const OwnedTensor like = Gapped();
  Start(&like.abi);
  ASSERT_TRUE(tensors.PoisonResults().ok());
  EXPECT_NE(Fault(), "");
}

TEST_F(TuneTensorsTest, AddressesAreAsFarFromABoundary) {
  OwnedTensor like = Gapped();
  like.abi.byte_offset = 8;
  Start(&like.abi);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->data) % 64, 8u);
  EXPECT_EQ(tensor->byte_offset, 0u);
}

}  // namespace
}  // namespace heed::test
