#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "os.h"

namespace heed::tools::os {
namespace {

// A "Name:   123 kB" line of a /proc file, in bytes.
std::optional<std::size_t> ProcFieldBytes(const char* path, const std::string& field) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(field + ":")) continue;
    std::istringstream words(line.substr(field.size() + 1));
    std::size_t kibibytes = 0;
    if (words >> kibibytes) return kibibytes * 1024;
  }
  return std::nullopt;
}

}  // namespace

bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

double NowSeconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double ProcessCpuSeconds() {
  struct timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::size_t AvailableMemoryBytes() {
  return ProcFieldBytes("/proc/meminfo", "MemAvailable").value_or(0);
}

PeakMemory::PeakMemory() {
  // Linux: 5 resets the peak to the current size (proc(5), clear_refs).
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;
  if (reset) start_bytes_ = ProcFieldBytes("/proc/self/status", "VmRSS");
}

std::optional<std::size_t> PeakMemory::GrowthBytes() const {
  const auto peak_bytes = ProcFieldBytes("/proc/self/status", "VmHWM");
  if (!start_bytes_ || !peak_bytes) return std::nullopt;
  return *peak_bytes > *start_bytes_ ? *peak_bytes - *start_bytes_ : 0;
}

}  // namespace heed::tools::os
