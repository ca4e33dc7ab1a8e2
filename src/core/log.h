// What the library has to say beside its results, for people who look for the cause of something.
// Off unless HEED_LOG asks for it: the library never prints by itself.
#ifndef HEED_CORE_LOG_H_
#define HEED_CORE_LOG_H_

#include <cstdint>
#include <string>

namespace heed::core {

enum class LogLevel : std::uint8_t { kOff, kWarn, kInfo, kDebug };

// HEED_LOG=LEVEL or LEVEL:FILE, with off, warn, info or debug. Without a file, standard error. A
// value that is neither is taken for warn, and the first line says so.
struct LogSetting {
  LogLevel level = LogLevel::kOff;
  std::string path;
  std::string complaint;  // about a value that was not understood
};
LogSetting ParseLogSetting(const std::string& value);

// Reads HEED_LOG each time, so use both for rare events only.
bool IsLogged(LogLevel level);
// Adds "heed: <level>: <text>" and a newline, when the level is asked for.
void Log(LogLevel level, const std::string& text);

}  // namespace heed::core

#endif  // HEED_CORE_LOG_H_
