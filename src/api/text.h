// The text buffers of heed_explain and heed_info.
#ifndef HEED_API_TEXT_H_
#define HEED_API_TEXT_H_

#include <cstddef>
#include <string>

#include "core/status.h"

namespace heed::api {

struct TextBuffer {
  char* text;
  std::size_t capacity_bytes;
  std::size_t* needed_bytes;  // may be null
};

core::Status CheckTextBuffer(const TextBuffer& buffer);
// Writes what fits, with a terminating 0, and gives the full size. Requires: CheckTextBuffer.
void WriteText(const std::string& text, const TextBuffer& buffer);

}  // namespace heed::api

#endif  // HEED_API_TEXT_H_
