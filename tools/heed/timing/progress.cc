#include "progress.h"

#include <cstdio>

#include "tools/heed/os.h"

namespace heed::tools {

Progress::Progress(std::int64_t num_cases)
    : num_cases_(num_cases), is_terminal_(os::StderrIsTerminal()) {}

Progress::~Progress() { Clear(); }

void Progress::StartCase(const std::string& name) {
  ++num_started_;
  name_ = name;
  Draw(0.0);
}

void Progress::Update(double case_fraction) { Draw(case_fraction); }

void Progress::Clear() {
  constexpr const char* kEraseLine = "\r\x1b[K";
  if (is_terminal_) std::fputs(kEraseLine, stderr);
}

void Progress::Draw(double case_fraction) {
  if (!is_terminal_) return;
  constexpr int kWidth = 30;
  const double done =
      (static_cast<double>(num_started_ - 1) + case_fraction) / static_cast<double>(num_cases_);
  const int num_filled = static_cast<int>(done * kWidth);
  Clear();
  std::fprintf(stderr, "[%s%s] %lld/%lld %s", std::string(num_filled, '#').c_str(),
               std::string(kWidth - num_filled, ' ').c_str(), static_cast<long long>(num_started_),
               static_cast<long long>(num_cases_), name_.c_str());
}

}  // namespace heed::tools
