// Calls of operations that no kernel row serves yet: their arguments are checked all the same, and
// the planner then says what is missing.
#ifndef HEED_CORE_CHECKED_CALL_H_
#define HEED_CORE_CHECKED_CALL_H_

#include "core/plan.h"

namespace heed::core {

struct CheckedCall {
  Op op = Op::kDecode;
  DType dtype = DType::kInvalid;
  std::int64_t head_dim = 0;  // the larger of D and Dv
  ExecOptions exec;
};

// The decode calls that a session of this configuration would make.
Status CheckSessionConfig(const heed_session_config_t* config, CheckedCall* call);

Status PlanCheckedCall(const CheckedCall& call, const DeviceFacts& facts, Plan* plan,
                       std::vector<Rejection>* rejections);

}  // namespace heed::core

#endif  // HEED_CORE_CHECKED_CALL_H_
