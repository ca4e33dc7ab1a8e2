// Result of an internal step: a heed_status_t with the text that heed_last_error() will show.
#ifndef HEED_CORE_STATUS_H_
#define HEED_CORE_STATUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "heed/heed.h"

namespace heed::core {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(heed_status_t code, std::string message)
      : error_(std::make_shared<const Error>(Error{code, std::move(message)})) {}

  bool ok() const { return error_ == nullptr; }
  heed_status_t code() const { return ok() ? HEED_OK : error_->code; }
  // Empty when ok.
  std::string message() const { return ok() ? std::string() : error_->message; }

 private:
  struct Error {
    heed_status_t code;
    std::string message;
  };

  // A call passes some hundred checks: a status that is ok is one null pointer.
  std::shared_ptr<const Error> error_;
};

// Constant name, such as "HEED_UNSUPPORTED"; "HEED_UNKNOWN_STATUS" for any other value.
const char* StatusName(std::int32_t code);

// printf-style text; used only to build messages.
[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);

inline Status InvalidArgument(std::string message) {
  return {HEED_INVALID_ARGUMENT, std::move(message)};
}
inline Status Unsupported(std::string message) { return {HEED_UNSUPPORTED, std::move(message)}; }
inline Status Internal(std::string message) { return {HEED_INTERNAL, std::move(message)}; }

}  // namespace heed::core

// Returns from the enclosing function when `expression` is not ok.
#define HEED_RETURN_IF_ERROR(expression)                                                           \
  do {                                                                                             \
    if (::heed::core::Status heed_status_ = (expression); !heed_status_.ok()) return heed_status_; \
  } while (false)

#endif  // HEED_CORE_STATUS_H_
