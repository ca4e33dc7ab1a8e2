#include "core/log.h"

#include <array>
#include <atomic>

#include "core/os/files.h"
#include "core/os/os.h"
#include "core/status.h"

namespace heed::core {
namespace {

constexpr std::array<const char*, 4> kLevelNames = {"off", "warn", "info", "debug"};

void Write(const LogSetting& setting, LogLevel level, const std::string& text) {
  const std::string line =
      Format("heed: %s: ", kLevelNames[static_cast<std::size_t>(level)]) + text + "\n";
  os::AppendToFile(setting.path, line);
}

LogSetting CurrentSetting() { return ParseLogSetting(os::Environment("HEED_LOG")); }

}  // namespace

LogSetting ParseLogSetting(const std::string& value) {
  LogSetting setting;
  if (value.empty()) return setting;
  const std::size_t colon = value.find(':');
  const std::string name = value.substr(0, colon);
  if (colon != std::string::npos) setting.path = value.substr(colon + 1);
  for (std::size_t level = 0; level < kLevelNames.size(); ++level) {
    if (name == kLevelNames[level]) {
      setting.level = static_cast<LogLevel>(level);
      return setting;
    }
  }
  setting.path.clear();
  setting.level = LogLevel::kWarn;
  setting.complaint = Format(
      "HEED_LOG = %.64s: must be off, warn, info or debug, optionally with :FILE; taken for warn",
      value.c_str());
  return setting;
}

bool IsLogged(LogLevel level) { return level <= CurrentSetting().level; }

void Log(LogLevel level, const std::string& text) {
  static std::atomic<bool> has_complained = false;
  const LogSetting setting = CurrentSetting();
  if (level > setting.level) return;
  if (!setting.complaint.empty() && !has_complained.exchange(true)) {
    Write(setting, LogLevel::kWarn, setting.complaint);
  }
  Write(setting, level, text);
}

}  // namespace heed::core
