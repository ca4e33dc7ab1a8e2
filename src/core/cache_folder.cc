#include "core/cache_folder.h"

#include <atomic>
#include <iterator>

#include "core/log.h"
#include "core/os/os.h"

namespace heed::core {
namespace {

constexpr const char* kVariables[] = {"HEED_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
constexpr const char* kBelow[] = {"", "/heed", "/.cache/heed"};

// Every reader of the folder comes past here, but one line for a variable says it all.
void WarnOnce(unsigned variable, const std::string& value) {
  static std::atomic<unsigned> warned_bits = 0;
  const unsigned bit = 1u << variable;
  if (!IsLogged(LogLevel::kWarn)) return;
  if ((warned_bits.fetch_or(bit) & bit) != 0) return;
  Log(LogLevel::kWarn,
      std::string(kVariables[variable]) + " = " + value + ": must be an absolute path; ignored");
}

}  // namespace

std::string CacheFolder(std::string* reason) {
  if (os::Environment("HEED_CACHE") == "0") {
    *reason = "HEED_CACHE=0";
    return {};
  }
  for (unsigned variable = 0; variable < std::size(kVariables); ++variable) {
    const std::string value = os::Environment(kVariables[variable]);
    if (value.starts_with('/')) return value + kBelow[variable];
    if (!value.empty()) WarnOnce(variable, value);
  }
  *reason = "none of HEED_CACHE_DIR, XDG_CACHE_HOME and HOME holds an absolute path";
  return {};
}

}  // namespace heed::core
