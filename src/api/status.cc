#include <array>
#include <cstddef>
#include <cstdio>

#include "api/boundary.h"
#include "core/abi_struct.h"

namespace heed::api {
namespace {
constexpr std::size_t kMessageBytes = 2048;
thread_local std::array<char, kMessageBytes> last_error = {};
}  // namespace

void SetLastError(const char* message) noexcept {
  std::snprintf(last_error.data(), last_error.size(), "%s", message);
}

}  // namespace heed::api

#define HEED_TEXT_OF(x) #x
#define HEED_VERSION_TEXT(major, minor, patch) \
  HEED_TEXT_OF(major) "." HEED_TEXT_OF(minor) "." HEED_TEXT_OF(patch)

extern "C" const char* heed_last_error(void) { return heed::api::last_error.data(); }

extern "C" const char* heed_status_name(heed_status_t status) {
  return heed::core::StatusName(heed::core::RawValue(status));
}

extern "C" const char* heed_version(void) {
  return HEED_VERSION_TEXT(HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH);
}
