#include "gpu/device_call.h"

#include <algorithm>

namespace heed::test {
namespace {

// The caller's workspace as device memory of the same size, full of NaN.
std::unique_ptr<DeviceBlock> MoveWorkspace(heed_exec_args_t* exec) {
  exec->num_threads = 0;
  if (exec->workspace == nullptr) return nullptr;
  auto block = std::make_unique<DeviceBlock>(exec->workspace_bytes);
  exec->workspace = block->data();
  return block;
}

}  // namespace

const heed_tensor_t* DeviceForwardCall::Move(const heed_tensor_t* host, bool is_output) {
  if (host == nullptr) return nullptr;
  tensors_.push_back({std::make_unique<DeviceCopy>(*host), is_output});
  return tensors_.back().copy->tensor();
}

DeviceForwardCall::DeviceForwardCall(const heed_forward_args_t& host, std::int64_t max_q_len,
                                     std::int64_t max_kv_len)
    : args_(host) {
  args_.q = Move(host.q, false);
  args_.k = Move(host.k, false);
  args_.v = Move(host.v, false);
  args_.o = Move(host.o, true);
  args_.lse = Move(host.lse, true);
  if (host.score != nullptr) {
    score_ = *host.score;
    score_.alibi_slopes = Move(host.score->alibi_slopes, false);
    score_.bias = Move(host.score->bias, false);
    score_.mask = Move(host.score->mask, false);
    score_.sinks = Move(host.score->sinks, false);
    args_.score = &score_;
  }
  if (host.varlen != nullptr) {
    varlen_ = *host.varlen;
    varlen_.cu_seqlens_q = Move(host.varlen->cu_seqlens_q, false);
    varlen_.cu_seqlens_kv = Move(host.varlen->cu_seqlens_kv, false);
    varlen_.seqused_q = Move(host.varlen->seqused_q, false);
    varlen_.seqused_kv = Move(host.varlen->seqused_kv, false);
    // On a device the bounds are required, so 0 is none.
    varlen_.max_seqlen_q = std::max<std::int64_t>(max_q_len, 1);
    varlen_.max_seqlen_kv = std::max<std::int64_t>(max_kv_len, 1);
    args_.varlen = &varlen_;
  }
  if (host.paging != nullptr) {
    paging_ = *host.paging;
    paging_.block_table = Move(host.paging->block_table, false);
    args_.paging = &paging_;
  }
  if (host.exec != nullptr) exec_ = *host.exec;
  workspace_ = MoveWorkspace(&exec_);
  args_.exec = &exec_;
}

std::string DeviceForwardCall::Finish() {
  const std::string sticky = Cuda::Get().StickyError();
  if (!sticky.empty()) return "the GPU reports " + sticky;
  for (const Moved& moved : tensors_) {
    // Inputs too: the caller's snapshots then show whether a kernel wrote into one.
    moved.copy->CopyBack();
    const std::string damage = moved.copy->DescribeDamage();
    if (!damage.empty()) return (moved.is_output ? "an output: " : "an input: ") + damage;
  }
  return workspace_ ? workspace_->DescribeDamage() : "";
}

DeviceBackwardCall::DeviceBackwardCall(const heed_backward_args_t& host, std::int64_t max_q_len,
                                       std::int64_t max_kv_len)
    : DeviceForwardCall(*host.forward, max_q_len, max_kv_len), backward_(host) {
  backward_.forward = args();
  backward_.d_o = Move(host.d_o, false);
  backward_.d_lse = Move(host.d_lse, false);
  backward_.dq = Move(host.dq, true);
  backward_.dk = Move(host.dk, true);
  backward_.dv = Move(host.dv, true);
  backward_.d_bias = Move(host.d_bias, true);
  backward_.d_sinks = Move(host.d_sinks, true);
  if (host.exec != nullptr) backward_exec_ = *host.exec;
  backward_workspace_ = MoveWorkspace(&backward_exec_);
  backward_.exec = &backward_exec_;
}

}  // namespace heed::test
