#include "session/held_args.h"

#include <algorithm>

#include "core/abi_struct.h"

namespace heed::session {

HeldArgs::HeldArgs(const heed_session_config_t& config) {
  // Each was read without an error before.
  static_cast<void>(core::ReadStruct("score", config.score, &score_));
  static_cast<void>(core::ReadStruct("exec", config.exec, &exec_));
  if (score_.scale != nullptr) {
    scale_ = *score_.scale;
    score_.scale = &scale_;
  }
  for (const heed_tensor_t** tensor :
       {&score_.alibi_slopes, &score_.bias, &score_.mask, &score_.sinks, &score_.dropout_rng}) {
    Hold(tensor);
  }
  if (exec_.kernel != nullptr) {
    kernel_ = exec_.kernel;
    exec_.kernel = kernel_.c_str();
  }
  if (exec_.allocator != nullptr) {
    static_cast<void>(core::ReadStruct("exec.allocator", exec_.allocator, &allocator_));
    exec_.allocator = &allocator_;
  }
}

void HeldArgs::Hold(const heed_tensor_t** tensor) {
  if (*tensor == nullptr) return;
  HeldTensor& held = tensors_[num_tensors_++];
  held.tensor = **tensor;
  std::copy_n(held.tensor.shape, held.tensor.ndim, held.shape.begin());
  held.tensor.shape = held.shape.data();
  if (held.tensor.strides != nullptr) {
    std::copy_n(held.tensor.strides, held.tensor.ndim, held.strides.begin());
    held.tensor.strides = held.strides.data();
  }
  *tensor = &held.tensor;
}

}  // namespace heed::session
