// Sessions across the C boundary. A handle is a number that the process never uses again, so that
// a stale or foreign one is refused, not followed.
#include "session/session.h"

#include <cinttypes>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "api/boundary.h"
#include "api/decode.h"
#include "api/host_session.h"
#include "core/abi_struct.h"
#include "core/session_config.h"
#include "cuda/backend.h"

namespace heed::api {
namespace {

using core::Status;
using session::Session;

// Calls on one session take turns.
struct OpenSession {
  std::mutex mutex;
  std::unique_ptr<Session> session;
};

class SessionTable {
 public:
  heed_session_t* Add(std::unique_ptr<Session> session) {
    auto open = std::make_shared<OpenSession>();
    open->session = std::move(session);
    const std::lock_guard<std::mutex> lock(mutex_);
    // Odd, so that it is no address of an object either.
    const std::uintptr_t id = 2 * next_++ + 1;
    sessions_.emplace(id, std::move(open));
    return reinterpret_cast<heed_session_t*>(id);
  }
  std::shared_ptr<OpenSession> Find(const heed_session_t* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sessions_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == sessions_.end() ? nullptr : found->second;
  }
  std::shared_ptr<OpenSession> Remove(const heed_session_t* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sessions_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == sessions_.end()) return nullptr;
    std::shared_ptr<OpenSession> open = std::move(found->second);
    sessions_.erase(found);
    return open;
  }

 private:
  std::mutex mutex_;
  std::uintptr_t next_ = 1;
  std::unordered_map<std::uintptr_t, std::shared_ptr<OpenSession>> sessions_;
};

// Never destroyed: other threads may still call while the process ends.
SessionTable& Table() {
  static SessionTable& table = *new SessionTable;
  return table;
}

Status NotOpen(const heed_session_t* handle) {
  return core::InvalidArgument(
      core::Format("session = %p: is not an open session of heed_session_create",
                   static_cast<const void*>(handle)));
}

Status MakeDevice(const core::SessionConfig& config, const core::ExecOptions& exec,
                  std::unique_ptr<core::SessionDevice>* device) {
  if (core::IsHostDevice(config.device)) {
    *device = std::make_unique<HostSessionDevice>(exec);
    return {};
  }
  if (exec.backend == HEED_BACKEND_CUDA) return cuda::MakeSessionDevice(exec, device);
  return core::Unsupported(
      core::Format("sessions on %s: no backend of this build keeps one there; "
                   "call heed_decode",
                   core::DeviceText(config.device).c_str()));
}

Status Create(const heed_session_config_t* source, heed_session_t** handle) {
  core::SessionConfig config;
  heed_session_config_t read;
  std::unique_ptr<core::SessionDevice> device;
  HEED_RETURN_IF_ERROR(core::RequirePointer("session", handle));
  HEED_RETURN_IF_ERROR(core::ReadSessionConfig(source, &config));
  HEED_RETURN_IF_ERROR(core::ReadRequiredStruct("config", source, &read));
  auto created =
      std::make_unique<Session>(config, read, session::DecodeCalls{PrepareDecode, Decode});
  HEED_RETURN_IF_ERROR(MakeDevice(config, created->exec(), &device));
  // Memory first: a cache that cannot be had is told at once, while a plan for very many sequences
  // takes seconds.
  HEED_RETURN_IF_ERROR(created->Start(std::move(device)));
  HEED_RETURN_IF_ERROR(created->PrepareFirstStep());
  *handle = Table().Add(std::move(created));
  return {};
}

Status Destroy(const heed_session_t* handle) {
  if (handle == nullptr) return {};
  const std::shared_ptr<OpenSession> open = Table().Remove(handle);
  if (open == nullptr) return NotOpen(handle);
  // A call that another thread still makes on it ends first.
  const std::lock_guard<std::mutex> lock(open->mutex);
  open->session.reset();
  return {};
}

template <class Work>
heed_status_t WithSession(const heed_session_t* handle, Work&& work) {
  return AtBoundary([&]() -> Status {
    HEED_RETURN_IF_ERROR(core::RequirePointer("session", handle));
    const std::shared_ptr<OpenSession> open = Table().Find(handle);
    if (open == nullptr) return NotOpen(handle);
    const std::lock_guard<std::mutex> lock(open->mutex);
    if (open->session == nullptr) return NotOpen(handle);
    return work(*open->session);
  });
}

}  // namespace
}  // namespace heed::api

using heed::api::AtBoundary;
using heed::api::WithSession;
using heed::session::Session;

extern "C" heed_status_t heed_session_create(const heed_session_config_t* config,
                                             heed_session_t** session) {
  return AtBoundary([&] { return heed::api::Create(config, session); });
}

extern "C" heed_status_t heed_session_destroy(heed_session_t* session) {
  return AtBoundary([&] { return heed::api::Destroy(session); });
}

extern "C" heed_status_t heed_session_append(heed_session_t* session, const heed_tensor_t* q,
                                             const heed_tensor_t* k, const heed_tensor_t* v) {
  return WithSession(session, [&](Session& open) { return open.Append(q, k, v); });
}

extern "C" heed_status_t heed_session_decode(heed_session_t* session) {
  return WithSession(session, [](Session& open) { return open.Decode(); });
}

extern "C" heed_status_t heed_session_output(heed_session_t* session, const heed_tensor_t* o) {
  return WithSession(session, [&](Session& open) { return open.Output(o); });
}

extern "C" heed_status_t heed_session_synchronize(heed_session_t* session) {
  return WithSession(session, [](Session& open) { return open.Synchronize(); });
}

extern "C" heed_status_t heed_session_truncate(heed_session_t* session, int64_t length_tokens) {
  return WithSession(session, [&](Session& open) { return open.Truncate(length_tokens); });
}

extern "C" heed_status_t heed_session_query(heed_session_t* session, heed_session_info_t* info) {
  return WithSession(session, [&](Session& open) { return open.Query(info); });
}
