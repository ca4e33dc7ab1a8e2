// Copies of the structs that a session hands to each of its decode calls. The data of the score
// tensors stays the caller's.
#ifndef HEED_SESSION_HELD_ARGS_H_
#define HEED_SESSION_HELD_ARGS_H_

#include <array>
#include <string>

#include "core/tensor_info.h"
#include "heed/heed.h"

namespace heed::session {

class HeldArgs {
 public:
  // Requires: a configuration that passed core::ReadSessionConfig.
  explicit HeldArgs(const heed_session_config_t& config);
  HeldArgs(const HeldArgs&) = delete;
  HeldArgs& operator=(const HeldArgs&) = delete;

  const heed_score_args_t& score() const { return score_; }
  const heed_exec_args_t& exec() const { return exec_; }
  void SetStream(void* stream) { exec_.stream = stream; }

 private:
  struct HeldTensor {
    heed_tensor_t tensor;
    std::array<std::int64_t, core::kMaxRank> shape;
    std::array<std::int64_t, core::kMaxRank> strides;
  };

  void Hold(const heed_tensor_t** tensor);

  heed_score_args_t score_;
  double scale_ = 1.0;
  std::array<HeldTensor, 5> tensors_;
  std::size_t num_tensors_ = 0;
  heed_exec_args_t exec_;
  heed_allocator_t allocator_;
  std::string kernel_;
};

}  // namespace heed::session

#endif  // HEED_SESSION_HELD_ARGS_H_
