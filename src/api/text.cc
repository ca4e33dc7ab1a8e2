#include "api/text.h"

#include <algorithm>
#include <cstring>

namespace heed::api {

core::Status CheckTextBuffer(const TextBuffer& buffer) {
  if (buffer.text != nullptr || buffer.capacity_bytes == 0) return {};
  return core::InvalidArgument(
      core::Format("text = NULL: capacity_bytes = %zu needs a buffer", buffer.capacity_bytes));
}

void WriteText(const std::string& text, const TextBuffer& buffer) {
  if (buffer.needed_bytes != nullptr) *buffer.needed_bytes = text.size() + 1;
  if (buffer.capacity_bytes == 0) return;
  const std::size_t copied_bytes = std::min(text.size(), buffer.capacity_bytes - 1);
  std::memcpy(buffer.text, text.data(), copied_bytes);
  buffer.text[copied_bytes] = '\0';
}

}  // namespace heed::api
