#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>

#include "core/os/os.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace heed::core::os {
namespace {

// A positive number of at most kMaxThreads, else 0.
int ThreadsFromEnvironment() {
  constexpr long kMaxThreads = 4096;
  const std::string text = Environment("HEED_NUM_THREADS");
  if (text.empty()) return 0;
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (errno != 0 || *end != '\0' || value < 1 || value > kMaxThreads) return 0;
  return static_cast<int>(value);
}

int CoresInAffinityMask() {
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) return CPU_COUNT(&mask);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

int NumUsableCores() {
  const int from_environment = ThreadsFromEnvironment();
  return from_environment > 0 ? from_environment : std::max(1, CoresInAffinityMask());
}

}  // namespace heed::core::os
