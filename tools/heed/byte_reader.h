// Bounds-checked little-endian reads from a file held in memory.
#ifndef HEED_TOOLS_BYTE_READER_H_
#define HEED_TOOLS_BYTE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "errors.h"

namespace heed::tools {

class ByteReader {
 public:
  ByteReader(const std::uint8_t* bytes, std::size_t num_bytes, std::string origin)
      : bytes_(bytes), num_bytes_(num_bytes), origin_(std::move(origin)) {}

  std::size_t num_bytes() const { return num_bytes_; }
  const std::uint8_t* At(std::size_t position) const { return bytes_ + position; }

  // Throws unless [position, position + length_bytes) lies in the file.
  void Require(std::uint64_t position, std::uint64_t length_bytes, const char* field) const {
    if (position <= num_bytes_ && length_bytes <= num_bytes_ - position) return;
    Fail(field, "needs bytes " + std::to_string(position) + " to " + std::to_string(position) +
                    " + " + std::to_string(length_bytes) + ", but the file has " +
                    std::to_string(num_bytes_));
  }

  // An unsigned integer of width_bytes <= 8.
  std::uint64_t Unsigned(std::uint64_t position, int width_bytes, const char* field) const {
    Require(position, static_cast<std::uint64_t>(width_bytes), field);
    std::uint64_t value = 0;
    for (int i = width_bytes - 1; i >= 0; --i) value = (value << 8) | bytes_[position + i];
    return value;
  }

  std::string_view Text(std::uint64_t position, std::uint64_t length_bytes,
                        const char* field) const {
    Require(position, length_bytes, field);
    return {reinterpret_cast<const char*>(bytes_ + position), length_bytes};
  }

  [[noreturn]] void Fail(std::string_view field, std::string_view rule) const {
    throw InputError(origin_ + ": " + std::string(field) + ": " + std::string(rule));
  }

 private:
  const std::uint8_t* bytes_;
  std::size_t num_bytes_;
  std::string origin_;
};

}  // namespace heed::tools

#endif  // HEED_TOOLS_BYTE_READER_H_
