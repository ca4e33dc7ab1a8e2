#include "cuda/resources.h"

#include <cctype>
#include <cstdlib>

namespace heed::cuda {
namespace {

// The number right before `unit`: 72 of "Used 72 registers, used 1 barriers" for " registers".
// 0 when the unit does not occur.
int NumberBefore(const std::string& text, const std::string& unit) {
  const std::size_t end = text.find(unit);
  if (end == std::string::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
  return std::atoi(text.substr(begin, end - begin).c_str());
}

}  // namespace

bool ParseResources(const std::string& log, const std::string& function,
                    KernelResources* resources) {
  KernelResources parsed;
  for (const char* note : {"C7510", "C7511", "C7512", "C7513", "C7514", "C7519"}) {
    if (log.find(note) != std::string::npos) parsed.is_serialized = true;
  }
  // ptxas reports one entry function after the other.
  const std::string heading = "Compiling entry function '";
  const std::size_t begin = log.find(heading + function + "'");
  if (begin == std::string::npos) return false;
  const std::string report = log.substr(begin, log.find(heading, begin + 1) - begin);
  if (report.find(" registers") == std::string::npos) return false;
  parsed.registers = NumberBefore(report, " registers");
  parsed.local_bytes = NumberBefore(report, " bytes stack frame");
  parsed.spill_bytes =
      NumberBefore(report, " bytes spill stores") + NumberBefore(report, " bytes spill loads");
  parsed.shared_bytes = NumberBefore(report, " bytes smem");
  *resources = parsed;
  return true;
}

}  // namespace heed::cuda
