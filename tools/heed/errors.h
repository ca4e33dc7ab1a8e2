// How the tool fails: every failure is one of these, and main() turns it into one line and an exit
// code.
#ifndef HEED_TOOLS_ERRORS_H_
#define HEED_TOOLS_ERRORS_H_

#include <stdexcept>
#include <string>

#include "heed/heed.h"

namespace heed::tools {

// Exit codes of the tool, documented in docs/cli.md.
enum ExitCode : int {
  kExitOk = 0,
  kExitMismatch = 1,  // check out of tolerance, bench below a bar that was asked to hold
  kExitBadInput = 2,  // usage, unreadable or malformed file, arguments no device could run
  kExitLibrary = 3    // legal, but the library cannot do it here, or failed
};

// Wrong options, or a file that cannot be used. The text names file, field, value and rule.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A failed library call; the text is heed_last_error().
class LibraryError : public std::runtime_error {
 public:
  LibraryError(heed_status_t status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  heed_status_t status() const { return status_; }

 private:
  heed_status_t status_;
};

}  // namespace heed::tools

#endif  // HEED_TOOLS_ERRORS_H_
