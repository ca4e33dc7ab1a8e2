// Host argument structs with every tensor moved to the GPU, for one call.
#ifndef HEED_TESTS_GPU_DEVICE_CALL_H_
#define HEED_TESTS_GPU_DEVICE_CALL_H_

#include <memory>
#include <string>
#include <vector>

#include "gpu/device_copy.h"

namespace heed::test {

class DeviceForwardCall {
 public:
  // max_q_len and max_kv_len: bounds for lengths that live on the device.
  DeviceForwardCall(const heed_forward_args_t& host, std::int64_t max_q_len,
                    std::int64_t max_kv_len);

  const heed_forward_args_t* args() const { return &args_; }
  heed_forward_args_t& mutable_args() { return args_; }
  heed_exec_args_t& exec() { return exec_; }
  // Waits, copies outputs back, and says what was written outside every tensor; empty = nothing.
  std::string Finish();

 protected:
  const heed_tensor_t* Move(const heed_tensor_t* host, bool is_output);

 private:
  struct Moved {
    std::unique_ptr<DeviceCopy> copy;
    bool is_output;
  };

  std::vector<Moved> tensors_;
  std::unique_ptr<DeviceBlock> workspace_;
  heed_score_args_t score_ = HEED_SCORE_ARGS_INIT;
  heed_varlen_args_t varlen_ = HEED_VARLEN_ARGS_INIT;
  heed_paging_args_t paging_ = HEED_PAGING_ARGS_INIT;
  heed_exec_args_t exec_ = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t args_ = HEED_FORWARD_ARGS_INIT;
};

// The forward part plus gradients.
class DeviceBackwardCall : public DeviceForwardCall {
 public:
  DeviceBackwardCall(const heed_backward_args_t& host, std::int64_t max_q_len,
                     std::int64_t max_kv_len);
  const heed_backward_args_t* backward_args() const { return &backward_; }

 private:
  heed_exec_args_t backward_exec_ = HEED_EXEC_ARGS_INIT;
  heed_backward_args_t backward_ = HEED_BACKWARD_ARGS_INIT;
  std::unique_ptr<DeviceBlock> backward_workspace_;
};

}  // namespace heed::test

#endif  // HEED_TESTS_GPU_DEVICE_CALL_H_
