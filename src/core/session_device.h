// The memory of a session, as a backend keeps it; heed_tune keeps its tensors in one, too. One
// object belongs to one session, whose calls come one at a time.
#ifndef HEED_CORE_SESSION_DEVICE_H_
#define HEED_CORE_SESSION_DEVICE_H_

#include <array>
#include <cstddef>

#include "core/status.h"
#include "core/tensor_info.h"

namespace heed::core {

// One step on its way into session memory: q, k and v [B,S,H,D], written compactly in `dtype`, and
// two cache lengths, each repeated for every sequence.
struct SessionStep {
  struct Rows {
    const TensorInfo* source;
    std::size_t at_bytes;  // in the block
  };
  struct Lengths {
    std::int32_t num_tokens;
    std::size_t at_bytes;
  };
  void* block = nullptr;
  std::size_t size_bytes = 0;
  DType dtype = DType::kInvalid;
  std::int64_t num_sequences = 0;
  std::array<Rows, 3> rows = {};
  std::array<Lengths, 2> lengths = {};
  bool may_stay = false;  // on the host, where kernels read it
};

// How often the kernels of a decode call read its lengths, q, k_new and v_new. Once: they may as
// well lie in host memory.
enum class StepUse { kReadOften, kReadOnce, kReadOnceWhenRecorded };

struct StepNeeds {
  std::size_t workspace_bytes = 0;
  StepUse use = StepUse::kReadOften;
};

class SessionDevice {
 public:
  virtual ~SessionDevice() = default;

  // Blocks are aligned to 256 bytes, hold arbitrary bytes at first and live as long as the object,
  // or until they are released. Errors: HEED_OUT_OF_MEMORY.
  virtual Status Allocate(std::size_t size_bytes, void** block) = 0;
  virtual Status Release(void* block) = 0;

  // Whether a caller's tensor can be read (or written) by Upload and Download.
  virtual Status CheckTensor(const TensorInfo& tensor, DType session_dtype) const = 0;
  // Whether the upload of a step of so many bytes runs beside decode calls made before. Its block
  // must then not be that of the upload before.
  virtual bool UploadsAhead(std::size_t) const { return false; }
  // Later decode calls see the step at *inputs, laid out as in the block: there, or where the
  // device keeps a step that may stay on the host, until a second upload after it. The tensors may
  // change as soon as the call returns, those in device memory once the work before the next
  // Synchronize is done.
  virtual Status Upload(const SessionStep& step, void** inputs) = 0;
  // Follows every decode call that reads the last upload and is no replay.
  virtual Status MarkRead() { return {}; }
  // Waits for decode calls made before, and for a host tensor until it is written.
  virtual Status Download(const void* rows, DType dtype, const TensorInfo& target) = 0;
  // Plain bytes between the host and a block, or a place in one. Both wait until they are copied.
  virtual Status Write(void* target, const void* host, std::size_t size_bytes) = 0;
  virtual Status Read(const void* source, std::size_t size_bytes, void* host) = 0;
  virtual Status Synchronize() = 0;
  // Decode calls on stream() between the two are recorded instead of run, together with the copy of
  // the last upload where it has one; a new recording replaces the former one. *is_recording false:
  // the device cannot, now or ever.
  virtual Status BeginRecording(bool* is_recording) {
    *is_recording = false;
    return {};
  }
  virtual Status EndRecording() { return Internal("a session device that records nothing"); }
  // Runs the recording for the last upload, in one submission. *is_replayed false: that upload is
  // not of the recorded kind, so that its decode call has to be made.
  virtual Status Replay(bool* is_replayed) {
    *is_replayed = false;
    return {};
  }
  // Sends what an upload left for Replay on its way, before any other call that needs it.
  virtual Status SendUpload() { return {}; }
  // Of the session's decode calls; null on the host.
  virtual void* stream() const = 0;
};

}  // namespace heed::core

#endif  // HEED_CORE_SESSION_DEVICE_H_
