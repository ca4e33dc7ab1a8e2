// A device, the library's own or a caller's, and running compute shaders on it.
#ifndef HEED_WEBGPU_DEVICE_H_
#define HEED_WEBGPU_DEVICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "webgpu/adapter.h"
#include "webgpu/buffer_pool.h"
#include "webgpu/direct_buffers.h"
#include "webgpu/features.h"
#include "webgpu/library.h"
#include "webgpu/row_copies.h"

namespace heed::webgpu {

// What every WebGPU device has, so no more is asked for.
inline constexpr std::uint64_t kMaxBindingBytes = std::uint64_t{128} << 20;
inline constexpr std::uint32_t kMaxWorkgroups = 65535;

// A shader with its entry point; `label` names the text in the cache of pipelines and in errors.
struct Shader {
  std::string label;
  std::string text;
  const char* entry_point = nullptr;
};

inline constexpr std::size_t kNumStorageBindings = 8;

// Where the tensors of a call are. Both may be null.
struct RowEnds {
  const DirectBuffers* buffers = nullptr;  // else on the host
  const core::ExecOptions* exec = nullptr;
};

// The buffer that rows of a tensor are in. Null = they are on the host, or are all constant inputs.
const DirectBuffers::Buffer* HomeOf(const RowCopies& rows, const RowEnds& ends);

// One dispatch. Binding 0 is the uniform block, storage binding i is at index i + 1. All byte
// counts are multiples of 4, a storage binding's is not 0.
struct Dispatch {
  std::vector<std::uint32_t> uniform;
  std::array<std::vector<std::uint32_t>, kNumStorageBindings> storage;
  // In place of words: what an input is packed from, and where an output goes by Deliver(), until
  // when it stays in `results`. An output without copies is left where it is.
  std::array<RowCopies, kNumStorageBindings> rows;
  std::array<Lease, kNumStorageBindings> results;
  RowEnds ends;
  std::array<bool, kNumStorageBindings> is_output = {};  // words are replaced by the result
  std::uint32_t num_workgroups = 0;                      // at most kMaxWorkgroups
  bool keeps_outputs = false;   // on the device, for a next dispatch with outputs of these sizes
  double device_seconds = 0.0;  // result: of the shader alone; 0 = unknown

  std::uint64_t BindingBytes(std::size_t binding) const {
    const std::uint64_t words =
        rows[binding].present() ? rows[binding].num_words : storage[binding].size();
    return words * sizeof(std::uint32_t);
  }
};

// Results that the host has, packed; none of the words where all copies are constant.
struct PackedRows {
  RowCopies rows;
  std::vector<std::uint32_t> words;
};

// Bytes of a buffer, and where on the host they go.
struct HostRange {
  BufferHandle buffer;
  std::uint64_t offset_bytes;
  void* target;
  std::uint64_t size_bytes;
};

// A device of the caller's with what belongs to it.
struct BorrowedHandles {
  AdapterHandle adapter = nullptr;
  DeviceHandle device = nullptr;
  QueueHandle queue = nullptr;
};

class Device {
 public:
  // The adapter that HEED_WEBGPU_ADAPTER asks for, opened and probed once for the life of the
  // process. HEED_UNAVAILABLE with the reason.
  static core::Status Get(Device** device);
  // A caller's device, probed, too. Keeps it and the queue alive until it is destroyed itself, and
  // releases everything that it made there. `library` is where the handles come from.
  static core::Status Borrow(const Library& library, const BorrowedHandles& handles,
                             std::shared_ptr<Device>* device);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Adapter& adapter() const { return adapter_; }
  // Whether the device was opened with a kFeature... .
  bool HasFeature(std::uint32_t feature) const {
    return f_->device_has_feature(device_, feature) != 0;
  }
  FeatureState& feature_state() { return feature_state_; }
  // Compiles the shader unless that was done. One thread at a time compiles or runs.
  core::Status Prepare(const Shader& shader);
  // Runs to completion where an output has words; else what it does is submitted.
  core::Status Run(const Shader& shader, Dispatch* dispatch);
  // Results that Run() left and results of the host's go to their tensors: to host memory before
  // this returns, to buffers for what is submitted later. On an error nothing was written.
  core::Status Deliver(std::span<Dispatch* const> dispatches, std::span<const PackedRows> made,
                       const RowEnds& ends);

  const Library& library() const { return library_; }
  // A caller's buffers; usage is a set of kUsage... bits.
  std::uint64_t BufferBytes(BufferHandle buffer) const { return f_->buffer_size(buffer); }
  std::uint64_t BufferUsage(BufferHandle buffer) const { return f_->buffer_usage(buffer); }
  // An error when the buffer was destroyed. It has kUsageStorage and 4 bytes at least. `name` =
  // the argument, for the message.
  core::Status CheckUsable(const char* name, BufferHandle buffer);
  // Offsets and sizes are multiples of 4. Reading waits; what is written is there for whatever is
  // submitted to the queue later.
  core::Status ReadRanges(std::span<const HostRange> ranges);
  core::Status WriteRange(BufferHandle buffer, std::uint64_t offset_bytes, const void* source,
                          std::uint64_t size_bytes);

 private:
  // While one lives, errors of a borrowed device come to this object: its callbacks are the
  // caller's.
  class ErrorScopes {
   public:
    explicit ErrorScopes(Device* device) : device_(device) { device_->PushScopes(); }
    ~ErrorScopes() { device_->PopScopes(); }
    ErrorScopes(const ErrorScopes&) = delete;
    ErrorScopes& operator=(const ErrorScopes&) = delete;

   private:
    Device* device_;
  };
  struct Buffer {
    BufferHandle handle = nullptr;
    std::uint64_t size_bytes = 0;
  };
  struct Error {
    std::mutex mutex;
    std::uint32_t type = 0;
    std::string message;  // empty = none
  };

  Device() = default;
  core::Status Open();
  core::Status ChooseAdapter(AdapterHandle* chosen);
  core::Status RequestDevice(AdapterHandle adapter);
  // The reason why there is none with these features; empty = device_ is set.
  std::string RequestWith(AdapterHandle adapter, const std::vector<std::uint32_t>& features);
  core::Status OpenClock();
  core::Status Probe();

  core::Status FindPipeline(const Shader& shader, PipelineHandle* pipeline);
  core::Status Reserve(Buffer* buffer, std::uint64_t size_bytes, std::uint64_t usage);
  core::Status Take(std::uint64_t size_bytes, std::uint64_t usage, Lease* lease);
  core::Status Upload(const Dispatch& dispatch);
  core::Status UploadRows(const RowCopies& rows, const RowEnds& ends, BufferHandle target);
  core::Status TakeStaging(std::uint64_t size_bytes, Lease* lease, void** mapped);
  // Waits for what was submitted.
  void Drain();
  // The parts of a dispatch's commands. `held` = buffers that they need until they are submitted.
  core::Status EncodeGathers(EncoderHandle encoder, const Dispatch& dispatch,
                             std::vector<Lease>* held);
  void EncodePass(EncoderHandle encoder, PipelineHandle pipeline, const Dispatch& dispatch);
  core::Status EncodeResults(EncoderHandle encoder, Dispatch* dispatch);
  enum class RowUse : std::uint8_t { kGather, kScatter };
  struct PackedBuffer {
    BufferHandle handle;
    std::uint64_t size_bytes;
  };
  core::Status EncodeRows(EncoderHandle encoder, RowUse use, const RowCopies& rows,
                          const DirectBuffers::Buffer& home, const PackedBuffer& packed,
                          std::vector<Lease>* held);
  core::Status Submit(EncoderHandle encoder, const std::string& step);
  core::Status ReadPiece(std::span<const HostRange> parts, std::uint64_t size_bytes);
  core::Status ReadClock(Dispatch* dispatch);
  core::Status ReadBuffer(BufferHandle buffer, void* target, std::size_t size_bytes,
                          const core::ExecOptions* exec);
  core::Status Map(BufferHandle buffer, std::uint64_t mode, std::size_t size_bytes);
  // Results for the host, mapped, until this goes.
  class MappedResults;
  // Of Deliver(): results of dispatches, and those that the host made for buffers.
  core::Status EncodeDelivery(EncoderHandle encoder, std::span<Dispatch* const> dispatches,
                              const RowEnds& ends, MappedResults* mapped, std::vector<Lease>* held);
  core::Status EncodeMade(EncoderHandle encoder, std::span<const PackedRows> made,
                          const RowEnds& ends, std::vector<Lease>* held);
  // An error when the device was destroyed or is lost: wgpu-native ends the process of whoever
  // submits to such a device.
  core::Status CheckAlive();
  void PushScopes();
  void PopScopes();
  // What the library reported since the last call.
  core::Status TakeError(const char* step);

  static void OnError(const DeviceHandle* device, std::uint32_t type, StringView message,
                      void* first, void* second);
  static void OnLost(const DeviceHandle* device, std::uint32_t reason, StringView message,
                     void* first, void* second);
  static void OnScope(std::uint32_t status, std::uint32_t type, StringView message, void* first,
                      void* second);

  std::mutex mutex_;
  bool is_borrowed_ = false;
  Library library_;
  const Functions* f_ = &library_.functions;
  Adapter adapter_;
  InstanceHandle instance_ = nullptr;
  DeviceHandle device_ = nullptr;
  QueueHandle queue_ = nullptr;
  Error error_;
  std::map<std::string, PipelineHandle> pipelines_;
  Buffer uniform_;
  BufferPool pool_{f_};
  std::array<Lease, kNumStorageBindings> storage_;    // of the dispatch that runs
  std::array<Lease, kNumStorageBindings> read_back_;  // its outputs that have words
  std::vector<Lease> in_flight_;                      // staging buffers until Drain()
  std::uint64_t in_flight_bytes_ = 0;
  bool has_clock_ = false;  // then the following exist
  QuerySetHandle clock_queries_ = nullptr;
  Buffer clock_, clock_read_back_;
  Buffer transfer_;  // of ReadRanges
  FeatureState feature_state_;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_DEVICE_H_
