#include "core/cache_folder.h"

#include "core/log.h"
#include "core/os/os.h"

namespace heed::core {

std::string CacheFolder(std::string* reason) {
  if (os::Environment("HEED_CACHE") == "0") {
    *reason = "HEED_CACHE=0";
    return {};
  }
  struct Place {
    const char* variable;
    const char* below;
  };
  for (const Place& place : {Place{"HEED_CACHE_DIR", ""}, Place{"XDG_CACHE_HOME", "/heed"},
                             Place{"HOME", "/.cache/heed"}}) {
    const std::string value = os::Environment(place.variable);
    if (value.starts_with('/')) return value + place.below;
    if (!value.empty()) {
      Log(LogLevel::kWarn,
          std::string(place.variable) + " = " + value + ": must be an absolute path; ignored");
    }
  }
  *reason = "none of HEED_CACHE_DIR, XDG_CACHE_HOME and HOME holds an absolute path";
  return {};
}

}  // namespace heed::core
