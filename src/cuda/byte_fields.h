// Fixed-width little-endian fields of cache and pack files.
#ifndef HEED_CUDA_BYTE_FIELDS_H_
#define HEED_CUDA_BYTE_FIELDS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/sha256.h"

namespace heed::cuda {

inline void AppendU64(std::string* bytes, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) bytes->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}
// Length, then the characters.
inline void AppendText(std::string* bytes, std::string_view text) {
  AppendU64(bytes, text.size());
  bytes->append(text);
}
inline void AppendDigest(std::string* bytes, const core::Sha256Digest& digest) {
  bytes->append(reinterpret_cast<const char*>(digest.data()), digest.size());
}

// Takes fields from the front of a text that is not trusted. Every function says whether the bytes
// were there; once one fails, so do all after it.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}

  bool Take(std::size_t num_bytes, std::string_view* field) {
    if (has_failed_ || num_bytes > bytes_.size()) {
      has_failed_ = true;
      return false;
    }
    *field = bytes_.substr(0, num_bytes);
    bytes_.remove_prefix(num_bytes);
    return true;
  }
  bool TakeU64(std::uint64_t* value) {
    std::string_view field;
    if (!Take(8, &field)) return false;
    *value = 0;
    for (int i = 7; i >= 0; --i) *value = *value << 8 | static_cast<unsigned char>(field[i]);
    return true;
  }
  bool TakeText(std::string* text) {
    std::uint64_t num_chars = 0;
    std::string_view field;
    if (!TakeU64(&num_chars) || !Take(num_chars, &field)) return false;
    text->assign(field);
    return true;
  }
  bool TakeDigest(core::Sha256Digest* digest) {
    std::string_view field;
    if (!Take(digest->size(), &field)) return false;
    std::memcpy(digest->data(), field.data(), field.size());
    return true;
  }
  std::size_t num_bytes_left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
  bool has_failed_ = false;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_BYTE_FIELDS_H_
