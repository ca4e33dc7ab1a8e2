#include "conformance/crash_note.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace heed::test {
namespace {

constexpr std::size_t kCapacityBytes = 1024;
thread_local char note[kCapacityBytes];

void WriteNote() {
  constexpr char kPrefix[] = "\nconformance: died in ";
  // Nothing can be done about a failing write while dying.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kPrefix, sizeof kPrefix - 1);
  written = write(STDERR_FILENO, note, std::strlen(note));
  written = write(STDERR_FILENO, "\n", 1);
}

[[maybe_unused]] void OnSignal(int number) {
  WriteNote();
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

void InstallCrashNote() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  __sanitizer_set_death_callback(WriteNote);
#else
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) signal(number, OnSignal);
#endif
}

void SetCrashNote(const std::string& text) {
  const std::size_t length = std::min(text.size(), kCapacityBytes - 1);
  std::memcpy(note, text.data(), length);
  note[length] = '\0';
}

}  // namespace heed::test
