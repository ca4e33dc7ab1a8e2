// A caller's fp16 lse: kernels see an fp32 copy in the workspace, converted after the forward and
// before the backward kernels.
#ifndef HEED_CUDA_HALF_LSE_H_
#define HEED_CUDA_HALF_LSE_H_

#include "core/problem.h"
#include "cuda/launch.h"

namespace heed::cuda {

class HalfLse {
 public:
  explicit HalfLse(const core::ForwardProblem& problem);

  // False when the caller's lse is fp32 or absent: then the rest is never called.
  bool is_needed() const { return is_needed_; }
  // Workspace bytes, 0 when not needed.
  std::size_t num_bytes() const;
  // What kernels are given: the copy at `block`, or the caller's own.
  LseArg ArgAt(char* block) const;

  enum class Direction : int { kToCaller = 0, kFromCaller = 1 };
  core::Status Prepare(const CallContext& context, Direction direction) const;
  core::Status Convert(const CallContext& context, Direction direction, char* block) const;

 private:
  KernelKey KeyOf(Direction direction) const;
  LaunchShape ShapeOf() const;

  const core::ForwardProblem& problem_;
  bool is_needed_ = false;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_HALF_LSE_H_
