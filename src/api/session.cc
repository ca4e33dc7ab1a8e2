// Sessions: no backend of this build can keep one, so heed_session_create checks its configuration
// and says what is missing, and no other function ever sees a session.
#include "api/boundary.h"
#include "api/facts.h"
#include "core/abi_struct.h"
#include "core/checked_call.h"

namespace heed::api {
namespace {

using core::Status;

Status Create(const heed_session_config_t* config, heed_session_t** session) {
  core::CheckedCall call;
  core::DeviceFacts facts;
  core::Plan plan;
  HEED_RETURN_IF_ERROR(core::RequirePointer("session", session));
  HEED_RETURN_IF_ERROR(core::CheckSessionConfig(config, &call));
  HEED_RETURN_IF_ERROR(ReadFacts(call.exec, &facts));
  HEED_RETURN_IF_ERROR(core::PlanCheckedCall(call, facts, &plan, nullptr));
  return core::Unsupported("sessions: no backend of this build keeps one; call heed_decode");
}

heed_status_t RefuseSession(const heed_session_t* session) {
  return AtBoundary([&]() -> Status {
    HEED_RETURN_IF_ERROR(core::RequirePointer("session", session));
    return core::InvalidArgument("session: was not made by heed_session_create");
  });
}

}  // namespace
}  // namespace heed::api

using heed::api::AtBoundary;
using heed::api::RefuseSession;

extern "C" heed_status_t heed_session_create(const heed_session_config_t* config,
                                             heed_session_t** session) {
  return AtBoundary([&] { return heed::api::Create(config, session); });
}

extern "C" heed_status_t heed_session_destroy(heed_session_t* session) {
  return session == nullptr ? HEED_OK : RefuseSession(session);
}

extern "C" heed_status_t heed_session_append(heed_session_t* session, const heed_tensor_t*,
                                             const heed_tensor_t*, const heed_tensor_t*) {
  return RefuseSession(session);
}

extern "C" heed_status_t heed_session_decode(heed_session_t* session) {
  return RefuseSession(session);
}

extern "C" heed_status_t heed_session_output(heed_session_t* session, const heed_tensor_t*) {
  return RefuseSession(session);
}

extern "C" heed_status_t heed_session_synchronize(heed_session_t* session) {
  return RefuseSession(session);
}

extern "C" heed_status_t heed_session_truncate(heed_session_t* session, int64_t) {
  return RefuseSession(session);
}

extern "C" heed_status_t heed_session_query(heed_session_t* session, heed_session_info_t*) {
  return RefuseSession(session);
}
