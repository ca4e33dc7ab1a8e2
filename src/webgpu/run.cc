// A dispatch: its inputs go to the device, the shader runs, its results come back or stay.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/log.h"
#include "webgpu/binding_limit.h"
#include "webgpu/crew.h"
#include "webgpu/device.h"
#include "webgpu/row_table.h"
#include "webgpu/shader_source.h"

namespace heed::webgpu {
namespace {

using core::Format;
using core::Status;

// Rows of so many bytes are packed into a mapped buffer; smaller ones into words that are written.
constexpr std::uint64_t kStagedBytes = std::uint64_t{256} << 10;
// Staging buffers that may wait for the device.
constexpr std::uint64_t kMaxInFlightBytes = std::uint64_t{512} << 20;
constexpr std::uint64_t kStorageUsage = kUsageStorage | kUsageCopyTarget | kUsageCopySource;
constexpr std::uint64_t kReadBackUsage = kUsageMapRead | kUsageCopyTarget;
constexpr std::uint64_t kStagingUsage = kUsageMapWrite | kUsageCopySource;

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void OnMapped(std::uint32_t status, StringView message, void* first, void* second) {
  *static_cast<bool*>(first) = status == kStatusSuccess;
  if (status != kStatusSuccess) *static_cast<std::string*>(second) = TextOf(message);
}

bool HasWordsOut(const Dispatch& dispatch) {
  for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
    if (dispatch.is_output[binding] && !dispatch.rows[binding].present()) return true;
  }
  return false;
}

}  // namespace

Status Device::Run(const Shader& shader, Dispatch* dispatch) {
  const std::lock_guard lock(mutex_);
  const ErrorScopes scopes(this);
  HEED_RETURN_IF_ERROR(CheckAlive());
  PipelineHandle pipeline = nullptr;
  HEED_RETURN_IF_ERROR(FindPipeline(shader, &pipeline));
  const auto begin = std::chrono::steady_clock::now();
  HEED_RETURN_IF_ERROR(Upload(*dispatch));
  const double upload_seconds = SecondsSince(begin);
  std::vector<Lease> held;
  EncoderHandle encoder = f_->create_encoder(device_, nullptr);
  Status status = EncodeGathers(encoder, *dispatch, &held);
  if (status.ok()) {
    EncodePass(encoder, pipeline, *dispatch);
    status = EncodeResults(encoder, dispatch);
  }
  if (status.ok()) status = Submit(encoder, "running " + shader.label);
  f_->release_encoder(encoder);
  HEED_RETURN_IF_ERROR(status);
  for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
    if (read_back_[binding].handle() == nullptr) continue;
    const Lease lease = std::move(read_back_[binding]);
    HEED_RETURN_IF_ERROR(ReadBuffer(lease.handle(), dispatch->storage[binding].data(),
                                    dispatch->BindingBytes(binding), dispatch->ends.exec));
  }
  const bool is_logged = core::IsLogged(core::LogLevel::kDebug);
  if (is_logged || HasWordsOut(*dispatch)) HEED_RETURN_IF_ERROR(ReadClock(dispatch));
  if (!dispatch->keeps_outputs) storage_ = {};
  if (is_logged) {
    core::Log(core::LogLevel::kDebug,
              Format("webgpu: %s, %u workgroups: %.1f us, after %.1f us of packing and uploading",
                     shader.label.c_str(), dispatch->num_workgroups, dispatch->device_seconds * 1e6,
                     upload_seconds * 1e6));
  }
  return TakeError(("running " + shader.label).c_str());
}

Status Device::Take(std::uint64_t size_bytes, std::uint64_t usage, Lease* lease) {
  if (lease->size_bytes() >= size_bytes) return {};
  *lease = pool_.Find(size_bytes, usage);
  if (lease->handle() != nullptr) return {};
  BufferDescriptor descriptor;
  descriptor.usage = usage;
  descriptor.size_bytes = BufferPool::RoundedBytes(size_bytes);
  BufferHandle handle = f_->create_buffer(device_, &descriptor);
  HEED_RETURN_IF_ERROR(TakeError("allocating a buffer"));
  *lease = Lease(&pool_, handle, descriptor.size_bytes, usage);
  return {};
}

Status Device::Upload(const Dispatch& dispatch) {
  const std::uint64_t uniform_bytes = dispatch.uniform.size() * sizeof(std::uint32_t);
  HEED_RETURN_IF_ERROR(Reserve(&uniform_, uniform_bytes, kUsageUniform | kUsageCopyTarget));
  f_->write_buffer(queue_, uniform_.handle, 0, dispatch.uniform.data(), uniform_bytes);
  for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
    const std::uint64_t bytes = dispatch.BindingBytes(binding);
    HEED_RETURN_IF_ERROR(Take(bytes, kStorageUsage, &storage_[binding]));
    BufferHandle target = storage_[binding].handle();
    if (dispatch.is_output[binding]) continue;
    if (dispatch.rows[binding].present()) {
      HEED_RETURN_IF_ERROR(UploadRows(dispatch.rows[binding], dispatch.ends, target));
    } else {
      f_->write_buffer(queue_, target, 0, dispatch.storage[binding].data(), bytes);
    }
  }
  return {};
}

// Of host tensors; what is in buffers is gathered with the dispatch.
Status Device::UploadRows(const RowCopies& rows, const RowEnds& ends, BufferHandle target) {
  if (HomeOf(rows, ends) != nullptr) return {};
  const std::uint64_t bytes = rows.num_words * sizeof(std::uint32_t);
  if (bytes < kStagedBytes) {
    std::vector<std::uint32_t> words(rows.num_words);
    PackRows(rows, ends.exec, words.data());
    f_->write_buffer(queue_, target, 0, words.data(), bytes);
    return {};
  }
  Lease staging;
  void* mapped = nullptr;
  HEED_RETURN_IF_ERROR(TakeStaging(bytes, &staging, &mapped));
  PackRows(rows, ends.exec, static_cast<std::uint32_t*>(mapped));
  f_->unmap_buffer(staging.handle());
  EncoderHandle encoder = f_->create_encoder(device_, nullptr);
  f_->copy_buffer(encoder, staging.handle(), 0, target, 0, bytes);
  Status status = Submit(encoder, "copying to the device");
  f_->release_encoder(encoder);
  in_flight_bytes_ += staging.size_bytes();
  in_flight_.push_back(std::move(staging));
  return status;
}

Status Device::TakeStaging(std::uint64_t size_bytes, Lease* lease, void** mapped) {
  if (in_flight_bytes_ > kMaxInFlightBytes) Drain();
  *lease = pool_.Find(size_bytes, kStagingUsage);
  if (lease->handle() != nullptr) {
    HEED_RETURN_IF_ERROR(Map(lease->handle(), kMapWrite, size_bytes));
  } else {
    BufferDescriptor descriptor;
    descriptor.usage = kStagingUsage;
    descriptor.size_bytes = BufferPool::RoundedBytes(size_bytes);
    descriptor.mapped_at_creation = 1;
    BufferHandle handle = f_->create_buffer(device_, &descriptor);
    HEED_RETURN_IF_ERROR(TakeError("allocating a buffer"));
    *lease = Lease(&pool_, handle, descriptor.size_bytes, kStagingUsage);
  }
  *mapped = f_->writable_range(lease->handle(), 0, size_bytes);
  if (*mapped != nullptr) return {};
  return {HEED_DEVICE_ERROR, "WebGPU, mapping a buffer on " + adapter_.name + ": no memory"};
}

void Device::Drain() {
  f_->poll(device_, 1, nullptr);
  in_flight_.clear();
  in_flight_bytes_ = 0;
}

Status Device::EncodeGathers(EncoderHandle encoder, const Dispatch& dispatch,
                             std::vector<Lease>* held) {
  for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
    const RowCopies& rows = dispatch.rows[binding];
    if (!rows.present() || dispatch.is_output[binding]) continue;
    const DirectBuffers::Buffer* home = HomeOf(rows, dispatch.ends);
    if (home == nullptr) continue;
    HEED_RETURN_IF_ERROR(EncodeRows(encoder, RowUse::kGather, rows, *home,
                                    {storage_[binding].handle(), dispatch.BindingBytes(binding)},
                                    held));
  }
  return {};
}

Status Device::EncodeRows(EncoderHandle encoder, RowUse use, const RowCopies& rows,
                          const DirectBuffers::Buffer& home, const PackedBuffer& packed,
                          std::vector<Lease>* held) {
  const RowHome place = {reinterpret_cast<const void*>(home.address), home.size_bytes};
  const RowPass pass_of_rows = use == RowUse::kGather       ? RowPass::kGather
                               : HasWholeWords(rows, place) ? RowPass::kScatterWords
                                                            : RowPass::kScatterHalves;
  PipelineHandle pipeline = nullptr;
  HEED_RETURN_IF_ERROR(FindPipeline(RowShader(pass_of_rows), &pipeline));
  std::uint64_t max_binding_bytes = 0;
  HEED_RETURN_IF_ERROR(ReadBindingLimit(&max_binding_bytes));
  BindGroupLayoutHandle layout = f_->pipeline_layout(pipeline, 0);
  Status status;
  for (const RowDispatch& part : DivideRows(rows, place, max_binding_bytes)) {
    const std::uint64_t table_bytes = part.table.size() * sizeof(std::uint32_t);
    Lease table;
    status = Take(table_bytes, kStorageUsage, &table);
    if (!status.ok()) break;
    f_->write_buffer(queue_, table.handle(), 0, part.table.data(), table_bytes);
    std::array<BindGroupEntry, 3> entries;
    entries[0].buffer = table.handle();
    entries[0].size_bytes = table_bytes;
    entries[1].buffer = home.handle;
    entries[1].offset_bytes = part.begin_bytes;
    entries[1].size_bytes = part.size_bytes;
    entries[2].buffer = packed.handle;
    entries[2].size_bytes = packed.size_bytes;
    for (std::size_t at = 0; at < entries.size(); ++at) {
      entries[at].binding = static_cast<std::uint32_t>(at);
    }
    BindGroupDescriptor group;
    group.layout = layout;
    group.num_entries = entries.size();
    group.entries = entries.data();
    BindGroupHandle bind_group = f_->create_bind_group(device_, &group);
    PassHandle pass = f_->begin_pass(encoder, nullptr);
    f_->set_pipeline(pass, pipeline);
    f_->set_bind_group(pass, 0, bind_group, 0, nullptr);
    f_->dispatch(pass, part.num_workgroups, 1, 1);
    f_->end_pass(pass);
    f_->release_pass(pass);
    f_->release_bind_group(bind_group);
    held->push_back(std::move(table));
  }
  f_->release_layout(layout);
  return status;
}

void Device::EncodePass(EncoderHandle encoder, PipelineHandle pipeline, const Dispatch& dispatch) {
  std::array<BindGroupEntry, kNumStorageBindings + 1> entries;
  entries[0].buffer = uniform_.handle;
  entries[0].size_bytes = dispatch.uniform.size() * sizeof(std::uint32_t);
  for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
    BindGroupEntry& entry = entries[binding + 1];
    entry.binding = static_cast<std::uint32_t>(binding + 1);
    entry.buffer = storage_[binding].handle();
    entry.size_bytes = dispatch.BindingBytes(binding);
  }
  BindGroupDescriptor group;
  group.layout = f_->pipeline_layout(pipeline, 0);
  group.num_entries = entries.size();
  group.entries = entries.data();
  BindGroupHandle bind_group = f_->create_bind_group(device_, &group);
  f_->release_layout(group.layout);
  TimestampWrites timestamps;
  timestamps.queries = clock_queries_;
  PassDescriptor pass_descriptor;
  pass_descriptor.timestamps = has_clock_ ? &timestamps : nullptr;
  PassHandle pass = f_->begin_pass(encoder, &pass_descriptor);
  f_->set_pipeline(pass, pipeline);
  f_->set_bind_group(pass, 0, bind_group, 0, nullptr);
  f_->dispatch(pass, dispatch.num_workgroups, 1, 1);
  f_->end_pass(pass);
  f_->release_pass(pass);
  f_->release_bind_group(bind_group);
  if (!has_clock_) return;
  f_->resolve_queries(encoder, clock_queries_, 0, 2, clock_.handle, 0);
  f_->copy_buffer(encoder, clock_.handle, 0, clock_read_back_.handle, 0, clock_.size_bytes);
}

// Words come back, rows for buffers stay where they are, those for the host go where it can map.
Status Device::EncodeResults(EncoderHandle encoder, Dispatch* dispatch) {
  for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
    if (!dispatch->is_output[binding]) continue;
    const RowCopies& rows = dispatch->rows[binding];
    if (rows.present() && rows.copies.empty()) continue;
    Lease& result = dispatch->results[binding];
    if (rows.present() && HomeOf(rows, dispatch->ends) != nullptr) {
      result = std::move(storage_[binding]);
      continue;
    }
    Lease& target = rows.present() ? result : read_back_[binding];
    const std::uint64_t bytes = dispatch->BindingBytes(binding);
    HEED_RETURN_IF_ERROR(Take(bytes, kReadBackUsage, &target));
    f_->copy_buffer(encoder, storage_[binding].handle(), 0, target.handle(), 0, bytes);
  }
  return {};
}

Status Device::Submit(EncoderHandle encoder, const std::string& step) {
  CommandsHandle commands = f_->finish(encoder, nullptr);
  Status status = TakeError(step.c_str());
  if (status.ok()) {
    f_->submit(queue_, 1, &commands);
    status = TakeError(step.c_str());
  }
  f_->release_commands(commands);
  return status;
}

Status Device::Map(BufferHandle buffer, std::uint64_t mode, std::size_t size_bytes) {
  bool is_mapped = false;
  std::string refusal = "no answer";
  f_->map_buffer(buffer, mode, 0, size_bytes,
                 {nullptr, kCallbackSpontaneous, &OnMapped, &is_mapped, &refusal});
  Drain();
  HEED_RETURN_IF_ERROR(TakeError("mapping a buffer"));
  if (is_mapped) {
    if (mode == kMapRead && core::IsLogged(core::LogLevel::kDebug)) {
      core::Log(core::LogLevel::kDebug, Format("webgpu: read back %zu bytes", size_bytes));
    }
    return {};
  }
  return {HEED_DEVICE_ERROR,
          Format("WebGPU, mapping a buffer on %s: %s", adapter_.name.c_str(), refusal.c_str())};
}

Status Device::ReadBuffer(BufferHandle buffer, void* target, std::size_t size_bytes,
                          const core::ExecOptions* exec) {
  HEED_RETURN_IF_ERROR(Map(buffer, kMapRead, size_bytes));
  constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
  const auto* source = static_cast<const char*>(f_->mapped_range(buffer, 0, size_bytes));
  const std::size_t num_pieces = (size_bytes + kPieceBytes - 1) / kPieceBytes;
  Crew crew(static_cast<std::int64_t>(num_pieces), [&](std::int64_t piece) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kPieceBytes;
    std::memcpy(static_cast<char*>(target) + begin, source + begin,
                std::min(kPieceBytes, size_bytes - begin));
  });
  crew.Run(exec, static_cast<std::int64_t>(size_bytes / sizeof(std::uint32_t)));
  f_->unmap_buffer(buffer);
  return {};
}

Status Device::ReadClock(Dispatch* dispatch) {
  if (!has_clock_) return {};
  std::array<std::uint64_t, 2> ticks = {};
  HEED_RETURN_IF_ERROR(ReadBuffer(clock_read_back_.handle, ticks.data(), sizeof(ticks), nullptr));
  constexpr double kSecondsPerNanosecond = 1e-9;
  dispatch->device_seconds = static_cast<double>(ticks[1] - ticks[0]) *
                             static_cast<double>(f_->timestamp_period(queue_)) *
                             kSecondsPerNanosecond;
  return {};
}

}  // namespace heed::webgpu
