// The C boundary: what every exported function does around its work.
#ifndef HEED_API_BOUNDARY_H_
#define HEED_API_BOUNDARY_H_

#include <new>

#include "core/status.h"

namespace heed::api {

// Keeps the message of a failure for heed_last_error() of this thread. Never allocates: a message
// longer than the buffer is cut.
void SetLastError(const char* message) noexcept;

// Runs work() -> core::Status and turns its result, or what it throws, into a heed_status_t.
template <class Work>
heed_status_t AtBoundary(Work&& work) noexcept {
  try {
    const core::Status status = work();
    if (!status.ok()) SetLastError(status.message().c_str());
    return status.code();
  } catch (const std::bad_alloc&) {
    SetLastError("out of memory");
    return HEED_OUT_OF_MEMORY;
  } catch (...) {
    SetLastError("an unexpected exception reached the C boundary: please report it");
    return HEED_INTERNAL;
  }
}

}  // namespace heed::api

#endif  // HEED_API_BOUNDARY_H_
