// SHA-256 (FIPS 180-4): names of cached files and checksums. A collision would run the wrong
// kernel, so nothing shorter or weaker will do, and half a megabyte a call costs a few
// milliseconds.
#ifndef HEED_CORE_SHA256_H_
#define HEED_CORE_SHA256_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace heed::core {

using Sha256Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  void Add(std::string_view bytes);
  // Adds the length first, so that neighbouring fields cannot trade characters.
  void AddField(std::string_view field);
  // Call once, at the end.
  Sha256Digest Finish();

 private:
  void AddBlock(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                         0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  std::array<std::uint8_t, 64> pending_ = {};
  std::size_t num_pending_ = 0;
  std::uint64_t num_bytes_ = 0;
};

Sha256Digest Sha256Of(std::string_view bytes);
// 64 lower-case hexadecimal digits.
std::string Hex(const Sha256Digest& digest);

}  // namespace heed::core

#endif  // HEED_CORE_SHA256_H_
