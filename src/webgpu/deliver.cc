// Results of a whole call -> its tensors.
#include "webgpu/device.h"

namespace heed::webgpu {

using core::Status;

const DirectBuffers::Buffer* HomeOf(const RowCopies& rows, const RowEnds& ends) {
  if (ends.buffers == nullptr) return nullptr;
  for (const RowCopy& copy : rows.copies) {
    if (copy.address != nullptr) return ends.buffers->Find(copy.address);
  }
  return nullptr;
}

class Device::MappedResults {
 public:
  explicit MappedResults(Device* device) : device_(device) {}
  ~MappedResults() {
    for (const Entry& entry : entries_) device_->f_->unmap_buffer(entry.buffer);
  }
  MappedResults(const MappedResults&) = delete;
  MappedResults& operator=(const MappedResults&) = delete;

  // `rows` lives as long.
  Status Add(BufferHandle buffer, const RowCopies& rows) {
    const std::uint64_t bytes = rows.num_words * sizeof(std::uint32_t);
    HEED_RETURN_IF_ERROR(device_->Map(buffer, kMapRead, bytes));
    entries_.push_back({buffer, &rows});
    return {};
  }
  void Unpack(const core::ExecOptions* exec) const {
    for (const Entry& entry : entries_) {
      const std::uint64_t bytes = entry.rows->num_words * sizeof(std::uint32_t);
      const void* words = device_->f_->mapped_range(entry.buffer, 0, bytes);
      UnpackRows(static_cast<const std::uint32_t*>(words), exec, *entry.rows);
    }
  }

 private:
  struct Entry {
    BufferHandle buffer;
    const RowCopies* rows;
  };
  Device* device_;
  std::vector<Entry> entries_;
};

Status Device::EncodeDelivery(EncoderHandle encoder, std::span<Dispatch* const> dispatches,
                              const RowEnds& ends, MappedResults* mapped,
                              std::vector<Lease>* held) {
  for (Dispatch* dispatch : dispatches) {
    for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
      const Lease& result = dispatch->results[binding];
      if (result.handle() == nullptr) continue;
      const RowCopies& rows = dispatch->rows[binding];
      const DirectBuffers::Buffer* home = HomeOf(rows, ends);
      if (home == nullptr) {
        HEED_RETURN_IF_ERROR(mapped->Add(result.handle(), rows));
      } else {
        HEED_RETURN_IF_ERROR(EncodeRows(encoder, RowUse::kScatter, rows, *home,
                                        {result.handle(), dispatch->BindingBytes(binding)}, held));
      }
    }
  }
  return {};
}

Status Device::EncodeMade(EncoderHandle encoder, std::span<const PackedRows> made,
                          const RowEnds& ends, std::vector<Lease>* held) {
  constexpr std::uint64_t kUsage = kUsageStorage | kUsageCopyTarget | kUsageCopySource;
  const std::vector<std::uint32_t> none(4);
  for (const PackedRows& packed : made) {
    const DirectBuffers::Buffer* home = HomeOf(packed.rows, ends);
    if (home == nullptr) continue;
    const std::vector<std::uint32_t>& words = packed.words.empty() ? none : packed.words;
    const std::uint64_t bytes = words.size() * sizeof(std::uint32_t);
    Lease source;
    HEED_RETURN_IF_ERROR(Take(bytes, kUsage, &source));
    f_->write_buffer(queue_, source.handle(), 0, words.data(), bytes);
    HEED_RETURN_IF_ERROR(
        EncodeRows(encoder, RowUse::kScatter, packed.rows, *home, {source.handle(), bytes}, held));
    held->push_back(std::move(source));
  }
  return {};
}

Status Device::Deliver(std::span<Dispatch* const> dispatches, std::span<const PackedRows> made,
                       const RowEnds& ends) {
  const std::lock_guard lock(mutex_);
  const ErrorScopes scopes(this);
  HEED_RETURN_IF_ERROR(CheckAlive());
  MappedResults mapped(this);
  std::vector<Lease> held;
  EncoderHandle encoder = f_->create_encoder(device_, nullptr);
  Status status = EncodeDelivery(encoder, dispatches, ends, &mapped, &held);
  if (status.ok()) status = EncodeMade(encoder, made, ends, &held);
  if (status.ok() && !held.empty()) status = Submit(encoder, "writing results");
  f_->release_encoder(encoder);
  HEED_RETURN_IF_ERROR(status);
  mapped.Unpack(ends.exec);
  for (const PackedRows& packed : made) {
    if (HomeOf(packed.rows, ends) == nullptr) {
      UnpackRows(packed.words.data(), ends.exec, packed.rows);
    }
  }
  return {};
}

}  // namespace heed::webgpu
