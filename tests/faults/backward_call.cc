#include "faults/backward_call.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/random.h"

namespace heed::test {

BackwardCall::BackwardCall(Element element, Indices q_shape, Indices k_shape, Indices v_shape)
    : AttentionCall(element, q_shape, k_shape, v_shape),
      d_o(element, o.shape()),
      dq(element, q_shape),
      dk(element, k_shape),
      dv(element, v_shape) {
  FillNormal(1);
  Random random(2, "d_o");
  d_o.Fill([&](const Indices&) { return random.Normal(); });
  exec.backend = backward_exec.backend = HEED_BACKEND_REFERENCE;
  backward.forward = &args;
  backward.d_o = d_o.abi();
  backward.dq = dq.abi();
  backward.dk = dk.abi();
  backward.dv = dv.abi();
  backward.exec = &backward_exec;
}

void BackwardCall::RunBoth() {
  ASSERT_EQ(Run(), HEED_OK) << heed_last_error();
  for (StridedTensor* gradient : {&dq, &dk, &dv}) {
    gradient->PoisonAll(Poison::kNaN);
    gradient->TakeSnapshot();
  }
  ASSERT_EQ(heed_backward(&backward), HEED_OK) << heed_last_error();
  const auto anywhere = [](const Indices&) { return true; };
  for (const StridedTensor* gradient : {&dq, &dk, &dv}) {
    EXPECT_EQ(gradient->DescribeStrayWrite(anywhere), "");
  }
}

void ExpectAllZero(const StridedTensor& tensor) {
  ForEachIndex(tensor.shape(), [&](const Indices& at) { EXPECT_EQ(tensor.At(at), 0.0); });
}

void ExpectNoNan(const StridedTensor& tensor) {
  ForEachIndex(tensor.shape(),
               [&](const Indices& at) { EXPECT_FALSE(std::isnan(tensor.At(at))) << ToString(at); });
}

}  // namespace heed::test
