// Session memory on a GPU.
//
// A step comes through pinned host memory in one copy: cache lengths, q, k and v stand side by side
// on both sides. A small one that kernels read once is not even copied. Copies of small steps and
// kernels share one stream: a step must be copied before it is attended to, so a second stream
// would only add events. Chunks of a prompt are copied on a stream of their own, while the ones
// before are attended to.
#ifndef HEED_CUDA_SESSION_DEVICE_H_
#define HEED_CUDA_SESSION_DEVICE_H_

#include <array>
#include <memory>
#include <vector>

#include "core/session_device.h"
#include "cuda/context.h"

namespace heed::cuda {

class SessionDevice final : public core::SessionDevice {
 public:
  explicit SessionDevice(const core::ExecOptions& exec) : exec_(exec) {}
  SessionDevice(const SessionDevice&) = delete;
  SessionDevice& operator=(const SessionDevice&) = delete;
  // Waits for the session's work.
  ~SessionDevice() override;

  // Called once, before anything else: a stream of its own unless exec brings one.
  core::Status Start();

  core::Status Allocate(std::size_t size_bytes, void** block) override;
  core::Status Release(void* block) override;
  core::Status CheckTensor(const core::TensorInfo& tensor,
                           core::DType session_dtype) const override;
  bool UploadsAhead(std::size_t step_bytes) const override;
  core::Status Upload(const core::SessionStep& step, void** inputs) override;
  core::Status MarkRead() override;
  core::Status Download(const void* rows, core::DType dtype,
                        const core::TensorInfo& target) override;
  core::Status Write(void* target, const void* host, std::size_t size_bytes) override;
  core::Status Read(const void* source, std::size_t size_bytes, void* host) override;
  core::Status Synchronize() override;
  core::Status BeginRecording(bool* is_recording) override;
  core::Status EndRecording() override;
  core::Status Replay(bool* is_replayed) override;
  core::Status SendUpload() override;
  void* stream() const override { return exec_.stream; }

 private:
  struct Block {
    void* data;
    std::size_t size_bytes;
  };
  // Pinned host memory that a copy may still be reading until `copied` has passed.
  struct Staging {
    void* data = nullptr;
    std::size_t size_bytes = 0;
    Event copied = nullptr;
  };

  core::Status AllocateBlock(const CallContext& context, std::size_t size_bytes, void** block);
  void Free(const CallContext& context, const Block& block);
  // Ready to be written to, with room for size_bytes.
  core::Status Prepare(const CallContext& context, std::size_t size_bytes, Staging* staging);
  void FreeStaging(const CallContext& context, Staging* staging);
  // The stream of a step's copy, after all that used its block, and then the session's stream after
  // the copy.
  core::Status BeginUpload(const CallContext& context, std::size_t step_bytes, Stream* stream);
  core::Status EndUpload(const CallContext& context, Event copied, Stream stream) const;

  core::ExecOptions exec_;  // its stream is the session's
  bool owns_stream_ = false;
  std::vector<Block> blocks_;
  // The host may be as many steps ahead of the device.
  static constexpr std::size_t kUploadsAhead = 4;
  std::array<Staging, kUploadsAhead> uploads_;
  std::size_t next_upload_ = 0;
  Stream copy_stream_ = nullptr;  // made for the first large step
  // Where the session's stream was when the two last uploads began.
  std::array<Event, 2> marks_ = {};
  // A block is new: its memory is there when the session's stream has come so far.
  bool has_new_block_ = false;
  Staging download_;
  // A graph that runs the kernels of a step, after copying `staging` to `block` where it has that.
  // Uploads of its kind then only fill the staging, whose event passes when a replay has ended.
  struct Recording {
    GraphExec graph = nullptr;
    Staging staging;
    void* block = nullptr;
    std::size_t step_bytes = 0;  // 0: has no staging
    bool stays = false;          // kernels read the staging, which is not copied
    bool is_filled = false;
  };
  // Of small steps from the host alone.
  bool IsCopiedByGraphs(const core::SessionStep& step) const;
  core::Status SendRows(const CallContext& context, const core::SessionStep& step,
                        Staging* staging);
  Recording recording_;
  // Where the last upload is that a graph could copy or read, else null and 0.
  Staging* last_staging_ = nullptr;
  void* last_block_ = nullptr;
  std::size_t last_bytes_ = 0;
  bool last_stays_ = false;
  Staging* in_place_ = nullptr;  // what kernels read the last upload from
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_SESSION_DEVICE_H_
