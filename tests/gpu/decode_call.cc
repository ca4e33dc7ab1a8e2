#include "gpu/decode_call.h"

namespace heed::test {

const heed_tensor_t* DeviceDecodeCall::Move(const heed_tensor_t* host) {
  if (host == nullptr) return nullptr;
  tensors_.push_back(std::make_unique<DeviceCopy>(*host));
  return tensors_.back()->tensor();
}

DeviceDecodeCall::DeviceDecodeCall(const heed_decode_args_t& host) : args_(host) {
  for (const heed_tensor_t** tensor :
       {&args_.q, &args_.k_cache, &args_.v_cache, &args_.k_new, &args_.v_new, &args_.o, &args_.lse,
        &args_.cache_lengths, &args_.cache_batch_index, &args_.cache_leftpad, &args_.rotary_cos,
        &args_.rotary_sin}) {
    *tensor = Move(*tensor);
  }
  if (host.quant != nullptr) {
    quant_ = *host.quant;
    quant_.k_scales = Move(host.quant->k_scales);
    quant_.v_scales = Move(host.quant->v_scales);
    args_.quant = &quant_;
  }
  if (host.score != nullptr) {
    score_ = *host.score;
    score_.alibi_slopes = Move(host.score->alibi_slopes);
    score_.bias = Move(host.score->bias);
    score_.mask = Move(host.score->mask);
    score_.sinks = Move(host.score->sinks);
    args_.score = &score_;
  }
  if (host.paging != nullptr) {
    paging_ = *host.paging;
    paging_.block_table = Move(host.paging->block_table);
    args_.paging = &paging_;
  }
  if (host.exec != nullptr) exec_ = *host.exec;
  exec_.backend = HEED_BACKEND_CUDA;
  exec_.num_threads = 0;
  args_.exec = &exec_;
}

heed_status_t DeviceDecodeCall::MakeWorkspace() {
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  const heed_status_t status = heed_plan(HEED_OP_DECODE, &args_, &plan);
  if (status != HEED_OK || plan.workspace_bytes == 0) return status;
  workspace_ = std::make_unique<DeviceBlock>(plan.workspace_bytes);
  exec_.workspace = workspace_->data();
  exec_.workspace_bytes = plan.workspace_bytes;
  return HEED_OK;
}

std::string DeviceDecodeCall::Finish() {
  const std::string sticky = Cuda::Get().StickyError();
  if (!sticky.empty()) return "the GPU reports " + sticky;
  for (const std::unique_ptr<DeviceCopy>& tensor : tensors_) {
    tensor->CopyBack();
    const std::string damage = tensor->DescribeDamage();
    if (!damage.empty()) return damage;
  }
  return workspace_ ? workspace_->DescribeDamage() : "";
}

}  // namespace heed::test
