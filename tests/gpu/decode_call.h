// The host arguments of a decode call with every tensor moved to the GPU.
#ifndef HEED_TESTS_GPU_DECODE_CALL_H_
#define HEED_TESTS_GPU_DECODE_CALL_H_

#include <memory>
#include <string>
#include <vector>

#include "gpu/device_copy.h"

namespace heed::test {

class DeviceDecodeCall {
 public:
  explicit DeviceDecodeCall(const heed_decode_args_t& host);

  const heed_decode_args_t* args() const { return &args_; }
  heed_exec_args_t& exec() { return exec_; }
  // A workspace of exactly the planned size, full of NaN.
  heed_status_t MakeWorkspace();
  // Waits, copies every tensor back, and says what was written outside of them; empty = nothing.
  std::string Finish();

 private:
  const heed_tensor_t* Move(const heed_tensor_t* host);

  std::vector<std::unique_ptr<DeviceCopy>> tensors_;
  std::unique_ptr<DeviceBlock> workspace_;
  heed_kv_quant_args_t quant_ = HEED_KV_QUANT_ARGS_INIT;
  heed_score_args_t score_ = HEED_SCORE_ARGS_INIT;
  heed_paging_args_t paging_ = HEED_PAGING_ARGS_INIT;
  heed_exec_args_t exec_ = HEED_EXEC_ARGS_INIT;
  heed_decode_args_t args_ = HEED_DECODE_ARGS_INIT;
};

}  // namespace heed::test

#endif  // HEED_TESTS_GPU_DECODE_CALL_H_
