// A forward call and its gradients, for faults of the backward pass. Backward runs on every
// backend that has it; today that is the oracle.
#ifndef HEED_TESTS_FAULTS_BACKWARD_CALL_H_
#define HEED_TESTS_FAULTS_BACKWARD_CALL_H_

#include "support/attention_call.h"

namespace heed::test {

class BackwardCall : public AttentionCall {
 public:
  BackwardCall(Element element, Indices q_shape, Indices k_shape, Indices v_shape);

  // Forward, then backward with poisoned gradients; both must succeed.
  void RunBoth();

  StridedTensor d_o, dq, dk, dv;
  heed_backward_args_t backward = HEED_BACKWARD_ARGS_INIT;
  heed_exec_args_t backward_exec = HEED_EXEC_ARGS_INIT;
};

// Every element is 0, or none is NaN.
void ExpectAllZero(const StridedTensor& tensor);
void ExpectNoNan(const StridedTensor& tensor);

}  // namespace heed::test

#endif  // HEED_TESTS_FAULTS_BACKWARD_CALL_H_
