#include "session/session.h"

#include <algorithm>
#include <cinttypes>
#include <utility>
#include <vector>

#include "core/abi_struct.h"

namespace heed::session {
namespace {

using core::Format;
using core::InvalidArgument;
using core::Status;
using core::TensorInfo;

constexpr core::AxisNames kQueries = {4, {"batch", "new_tokens", "num_q_heads", "head_dim"}};
constexpr core::AxisNames kKeys = {4, {"batch", "new_tokens", "num_kv_heads", "head_dim"}};
constexpr core::AxisNames kValues = {4, {"batch", "new_tokens", "num_kv_heads", "head_dim_v"}};
constexpr core::AxisNames kOutput = {4, {"batch", "new_tokens", "num_q_heads", "head_dim_v"}};

Status RequireExtent(const TensorInfo& info, int axis, std::int64_t wanted, const char* source) {
  if (info.shape[static_cast<std::size_t>(axis)] == wanted) return {};
  return InvalidArgument(info.AxisText(axis) +
                         Format(": must be %" PRId64 " (%s)", wanted, source));
}

// Each query sees the newest key alone: as little work as a decode call that appends can have.
heed_score_args_t NewestKeyOnly() {
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  score.causal = HEED_CAUSAL_ON;
  score.window_left = 0;
  return score;
}

}  // namespace

Session::Session(const core::SessionConfig& config, const heed_session_config_t& source,
                 DecodeCalls calls)
    : config_(config), held_(source), calls_(calls) {
  config_.exec.allocator = held_.exec().allocator;
}

Status Session::PrepareFirstStep() {
  StepBlocks blocks;
  std::vector<std::int32_t> lengths;
  HEED_RETURN_IF_ERROR(LayOutCache(config_, &blocks.cache));
  HEED_RETURN_IF_ERROR(LayOutStep(config_, 1, &blocks.step));
  if (core::IsHostDevice(config_.device)) {
    lengths.resize(static_cast<std::size_t>(config_.num_sequences));
    blocks.lengths = lengths.data();
  }
  const StepCall call(config_, blocks, held_.score(), held_.exec());
  core::StepNeeds needs;
  HEED_RETURN_IF_ERROR(calls_.prepare(&call.args(), &needs));
  steps_may_stay_ = needs.use == core::StepUse::kReadOnce ||
                    (needs.use == core::StepUse::kReadOnceWhenRecorded && config_.use_graph);
  return {};
}

Status Session::Start(std::unique_ptr<core::SessionDevice> device) {
  device_ = std::move(device);
  held_.SetStream(device_->stream());
  HEED_RETURN_IF_ERROR(LayOutCache(config_, &blocks_.cache));
  void* block = nullptr;
  HEED_RETURN_IF_ERROR(device_->Allocate(blocks_.cache.size_bytes, &block));
  blocks_.cache_block = static_cast<std::byte*>(block);
  return OpenStep(1);
}

Status Session::Ensure(std::size_t size_bytes, Buffer* buffer) {
  if (size_bytes <= buffer->size_bytes) return {};
  void* block = nullptr;
  HEED_RETURN_IF_ERROR(device_->Allocate(size_bytes, &block));
  const Buffer former = std::exchange(*buffer, {static_cast<std::byte*>(block), size_bytes});
  return former.data == nullptr ? Status() : device_->Release(former.data);
}

Status Session::OpenStep(std::int64_t num_tokens) {
  StepLayout layout;
  HEED_RETURN_IF_ERROR(LayOutStep(config_, num_tokens, &layout));
  if (device_->UploadsAhead(layout.upload_bytes)) std::swap(step_, spare_);
  HEED_RETURN_IF_ERROR(Ensure(layout.size_bytes, &step_));
  blocks_.step = layout;
  blocks_.step_block = step_.data;
  return {};
}

Status Session::CheckRows(const TensorInfo& rows, std::int64_t num_heads,
                          std::int64_t head_dim) const {
  HEED_RETURN_IF_ERROR(core::RequireDType(rows, {core::DType::kF32, config_.dtype}));
  HEED_RETURN_IF_ERROR(RequireExtent(rows, 0, config_.num_sequences, "config.num_sequences"));
  HEED_RETURN_IF_ERROR(RequireExtent(rows, 2, num_heads, "of the session's configuration"));
  HEED_RETURN_IF_ERROR(RequireExtent(rows, 3, head_dim, "of the session's configuration"));
  HEED_RETURN_IF_ERROR(core::RequireContiguousRows(rows));
  return device_->CheckTensor(rows, config_.dtype);
}

Status Session::ReadInputs(const heed_tensor_t* q, const heed_tensor_t* k, const heed_tensor_t* v,
                           Inputs* inputs) const {
  HEED_RETURN_IF_ERROR(core::RequirePointer("q", q));
  HEED_RETURN_IF_ERROR(core::RequirePointer("k", k));
  HEED_RETURN_IF_ERROR(core::RequirePointer("v", v));
  constexpr core::Purpose kRun = core::Purpose::kRun;
  HEED_RETURN_IF_ERROR(core::ReadTensor("q", *q, kQueries, kRun, &inputs->q));
  HEED_RETURN_IF_ERROR(core::ReadTensor("k", *k, kKeys, kRun, &inputs->k));
  HEED_RETURN_IF_ERROR(core::ReadTensor("v", *v, kValues, kRun, &inputs->v));
  HEED_RETURN_IF_ERROR(CheckRows(inputs->q, config_.num_q_heads, config_.head_dim));
  HEED_RETURN_IF_ERROR(CheckRows(inputs->k, config_.num_kv_heads, config_.head_dim));
  HEED_RETURN_IF_ERROR(CheckRows(inputs->v, config_.num_kv_heads, config_.head_dim_v));
  HEED_RETURN_IF_ERROR(core::RequireSameAxis(inputs->k, 1, inputs->q, 1));
  HEED_RETURN_IF_ERROR(core::RequireSameAxis(inputs->v, 1, inputs->q, 1));
  if (inputs->q.shape[1] < 1) {
    return InvalidArgument(inputs->q.AxisText(1) + ": must be at least 1");
  }
  const std::int64_t room_tokens = config_.capacity_tokens - length_tokens();
  if (inputs->q.shape[1] <= room_tokens) return {};
  return InvalidArgument(inputs->q.AxisText(1) +
                         Format(": must be at most %" PRId64 " (config.capacity_tokens = %" PRId64
                                ", of which %" PRId64 " are taken)",
                                room_tokens, config_.capacity_tokens, length_tokens()));
}

Status Session::Append(const heed_tensor_t* q, const heed_tensor_t* k, const heed_tensor_t* v) {
  Inputs inputs;
  HEED_RETURN_IF_ERROR(ReadInputs(q, k, v, &inputs));
  HEED_RETURN_IF_ERROR(Flush());
  has_output_ = false;
  staged_tokens_ = 0;
  HEED_RETURN_IF_ERROR(OpenStep(inputs.q.shape[1]));
  HEED_RETURN_IF_ERROR(Upload(inputs));
  staged_tokens_ = uncached_tokens_ = inputs.q.shape[1];
  return {};
}

Status Session::Upload(const Inputs& inputs) {
  const StepLayout& layout = blocks_.step;
  const auto before = static_cast<std::int32_t>(cached_tokens_);
  const auto after = static_cast<std::int32_t>(cached_tokens_ + inputs.q.shape[1]);
  core::SessionStep step;
  step.block = blocks_.step_block;
  step.size_bytes = layout.upload_bytes;
  step.dtype = config_.dtype;
  step.num_sequences = config_.num_sequences;
  step.rows = {{{&inputs.q, layout.q_at}, {&inputs.k, layout.k_at}, {&inputs.v, layout.v_at}}};
  step.lengths = {{{before, layout.lengths_before_at}, {after, layout.lengths_after_at}}};
  step.may_stay = steps_may_stay_ && inputs.q.shape[1] == 1;
  void* data = nullptr;
  HEED_RETURN_IF_ERROR(device_->Upload(step, &data));
  blocks_.inputs = static_cast<std::byte*>(data);
  return {};
}

StepBlocks Session::StagedBlocks() const {
  StepBlocks blocks = blocks_;
  blocks.num_tokens = staged_tokens_;
  blocks.append = uncached_tokens_ > 0 ? Append::kYes : Append::kNo;
  return blocks;
}

Status Session::Record(const StepKey& key) {
  const StepBlocks blocks = StagedBlocks();
  heed_exec_args_t exec = held_.exec();
  recorded_step_ = {};
  HEED_RETURN_IF_ERROR(device_->SendUpload());
  core::StepNeeds needs;
  const StepCall planned(config_, blocks, held_.score(), exec);
  HEED_RETURN_IF_ERROR(calls_.prepare(&planned.args(), &needs));
  HEED_RETURN_IF_ERROR(Ensure(needs.workspace_bytes, &workspace_));
  exec.workspace = workspace_.data;
  exec.workspace_bytes = workspace_.size_bytes;
  const StepCall call(config_, blocks, held_.score(), exec);
  HEED_RETURN_IF_ERROR(device_->BeginRecording(&can_record_));
  if (!can_record_) return {};
  const Status recorded = calls_.run(&call.args());
  const Status ended = device_->EndRecording();
  HEED_RETURN_IF_ERROR(recorded);
  HEED_RETURN_IF_ERROR(ended);
  recorded_step_ = key;
  return {};
}

Status Session::RunStep() {
  const StepKey key = {staged_tokens_, blocks_.step_block, blocks_.inputs != blocks_.step_block};
  const bool is_like_last = std::exchange(last_step_, key) == key;
  if (!config_.use_graph || uncached_tokens_ == 0) return Run(held_.score());
  if (recorded_step_ != key && is_like_last && can_record_) HEED_RETURN_IF_ERROR(Record(key));
  bool is_replayed = false;
  if (recorded_step_ == key) HEED_RETURN_IF_ERROR(device_->Replay(&is_replayed));
  if (!is_replayed) return Run(held_.score());
  cached_tokens_ += std::exchange(uncached_tokens_, 0);
  return {};
}

Status Session::Run(const heed_score_args_t& score) {
  HEED_RETURN_IF_ERROR(device_->SendUpload());
  const StepCall call(config_, StagedBlocks(), score, held_.exec());
  HEED_RETURN_IF_ERROR(calls_.run(&call.args()));
  HEED_RETURN_IF_ERROR(device_->MarkRead());
  cached_tokens_ += std::exchange(uncached_tokens_, 0);
  return {};
}

Status Session::Flush() {
  if (uncached_tokens_ == 0) return {};
  has_output_ = false;
  return Run(NewestKeyOnly());
}

Status Session::Decode() {
  if (staged_tokens_ == 0) {
    return InvalidArgument(
        "session: has no queries: heed_session_append must come before heed_session_decode");
  }
  has_output_ = false;
  HEED_RETURN_IF_ERROR(RunStep());
  has_output_ = true;
  return {};
}

Status Session::Output(const heed_tensor_t* o) {
  if (!has_output_) {
    return InvalidArgument(
        "session: has no output: heed_session_decode must come before heed_session_output");
  }
  TensorInfo target;
  HEED_RETURN_IF_ERROR(core::RequirePointer("o", o));
  HEED_RETURN_IF_ERROR(core::ReadTensor("o", *o, kOutput, core::Purpose::kRun, &target));
  HEED_RETURN_IF_ERROR(CheckRows(target, config_.num_q_heads, config_.head_dim_v));
  HEED_RETURN_IF_ERROR(RequireExtent(target, 1, staged_tokens_, "tokens of the last append"));
  HEED_RETURN_IF_ERROR(core::RequireWritable(target));
  return device_->Download(blocks_.step_block + blocks_.step.o_at, config_.dtype, target);
}

Status Session::Synchronize() { return device_->Synchronize(); }

Status Session::Truncate(std::int64_t target_tokens) {
  if (target_tokens < 0 || target_tokens > length_tokens()) {
    return InvalidArgument(Format("length_tokens = %" PRId64 ": must be from 0 to %" PRId64
                                  ", the session's length",
                                  target_tokens, length_tokens()));
  }
  if (target_tokens > cached_tokens_) HEED_RETURN_IF_ERROR(Flush());
  cached_tokens_ = target_tokens;
  uncached_tokens_ = staged_tokens_ = 0;
  has_output_ = false;
  return {};
}

Status Session::Query(heed_session_info_t* info) const {
  heed_session_info_t value = HEED_SESSION_INFO_INIT;
  value.length_tokens = length_tokens();
  value.capacity_tokens = config_.capacity_tokens;
  value.device_bytes =
      blocks_.cache.size_bytes + step_.size_bytes + spare_.size_bytes + workspace_.size_bytes;
  return core::WriteStruct("info", value, info);
}

}  // namespace heed::session
