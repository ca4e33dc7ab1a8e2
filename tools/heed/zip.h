// The part of the zip format that .npz files use: stored and deflated members, zip64 sizes.
// The central directory is the authority; every local header is checked against it.
#ifndef HEED_TOOLS_ZIP_H_
#define HEED_TOOLS_ZIP_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "byte_reader.h"
#include "tensor.h"

namespace heed::tools {

enum class ZipMethod : std::uint16_t { kStored = 0, kDeflated = 8 };

struct ZipMember {
  std::string name;
  ZipMethod method = ZipMethod::kStored;
  std::uint32_t crc32 = 0;
  std::uint64_t header_position = 0;  // of the local header
  std::uint64_t data_position = 0;
  std::uint64_t packed_bytes = 0;
  std::uint64_t unpacked_bytes = 0;
};

// All members, validated: unique names, ranges inside the file and not overlapping, unpacked sizes
// that deflate can reach. Throws InputError.
std::vector<ZipMember> ReadZipDirectory(const ByteReader& file);
// The content of a member, checked against its declared size and CRC-32.
Bytes UnpackZipMember(const ByteReader& file, const ZipMember& member);

struct ZipSource {
  std::string name;
  Bytes content;
};
// Stored members. Throws InputError when the archive would need zip64 (4 GiB and more).
Bytes WriteZip(std::span<const ZipSource> members);

}  // namespace heed::tools

#endif  // HEED_TOOLS_ZIP_H_
