// Calls whose tensors lie in a caller's WebGPU buffers, as calls on host tensors and on addresses
// that stand for buffers.
#ifndef HEED_API_HOST_CALL_H_
#define HEED_API_HOST_CALL_H_

#include <memory>

#include "core/problem.h"
#include "heed/heed.h"

namespace heed::webgpu {
class DirectBuffers;
}

namespace heed::api {

class HostCall {
 public:
  HostCall();
  ~HostCall();

  // Where q is in a WebGPU buffer, *args becomes a copy of the call, valid as long as this object,
  // whose tensors are on the host, or at addresses of buffers(); else it stays as it is. To plan,
  // only arrays of lengths are read. Errors name the argument; everything else about the arguments
  // is left to who builds problems.
  core::Status Stage(const heed_forward_args_t** args, core::Purpose purpose);
  core::Status Stage(const heed_backward_args_t** args, core::Purpose purpose);
  core::Status Stage(const heed_decode_args_t** args, core::Purpose purpose);
  // No other operation has a WebGPU row.
  template <class Args>
  core::Status Stage(const Args** /*args*/, core::Purpose /*purpose*/) {
    return {};
  }

  // Has the call run where its tensors were.
  void Place(core::ExecOptions* exec) const;
  // Null where no call was staged.
  const webgpu::DirectBuffers* buffers() const;
  // Results on the host -> the buffers, once the call has succeeded.
  core::Status Finish();

 private:
  struct Staged;
  std::unique_ptr<Staged> staged_;  // null = the call is as it came
};

}  // namespace heed::api

#endif  // HEED_API_HOST_CALL_H_
