#include "core/status.h"

#include <array>
#include <cstdarg>
#include <cstdio>

namespace heed::core {

const char* StatusName(std::int32_t code) {
  constexpr std::array<const char*, 7> kNames = {
      "HEED_OK",           "HEED_INVALID_ARGUMENT", "HEED_UNSUPPORTED", "HEED_OUT_OF_MEMORY",
      "HEED_DEVICE_ERROR", "HEED_UNAVAILABLE",      "HEED_INTERNAL"};
  const auto value = static_cast<std::size_t>(code);
  return value < kNames.size() ? kNames[value] : "HEED_UNKNOWN_STATUS";
}

std::string Format(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::va_list measured;
  va_copy(measured, arguments);
  const int length_chars = std::vsnprintf(nullptr, 0, format, measured);
  va_end(measured);
  std::string text(length_chars > 0 ? static_cast<std::size_t>(length_chars) : 0, '\0');
  if (length_chars > 0) std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  va_end(arguments);
  return text;
}

}  // namespace heed::core
