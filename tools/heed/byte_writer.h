// Little-endian output into memory.
#ifndef HEED_TOOLS_BYTE_WRITER_H_
#define HEED_TOOLS_BYTE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "tensor.h"

namespace heed::tools {

class ByteWriter {
 public:
  explicit ByteWriter(std::size_t expected_bytes = 0) { bytes_.reserve(expected_bytes); }

  std::size_t num_bytes() const { return bytes_.size(); }
  void Raw(const void* data, std::size_t num_bytes) {
    if (num_bytes == 0) return;
    const std::size_t position = bytes_.size();
    bytes_.resize(position + num_bytes);
    std::memcpy(bytes_.data() + position, data, num_bytes);
  }
  void Raw(const Bytes& bytes) { Raw(bytes.data(), bytes.size()); }
  void Text(std::string_view text) { Raw(text.data(), text.size()); }
  // The low width_bytes <= 8 bytes of value.
  void Unsigned(std::uint64_t value, int width_bytes) {
    std::uint8_t digits[8];
    for (int i = 0; i < width_bytes; ++i) digits[i] = static_cast<std::uint8_t>(value >> (8 * i));
    Raw(digits, static_cast<std::size_t>(width_bytes));
  }
  Bytes Take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

}  // namespace heed::tools

#endif  // HEED_TOOLS_BYTE_WRITER_H_
