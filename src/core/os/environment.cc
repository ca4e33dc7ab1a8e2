#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "core/os/os.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace heed::core::os {
namespace {

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

int NumUsableCores() { return std::max(1, CoresInAffinityMask()); }

}  // namespace heed::core::os
