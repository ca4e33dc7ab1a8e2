#include <zlib.h>

#include <limits>

#include "zip.h"

namespace heed::tools {
namespace {

// 1980-01-01, the format's zero: equal contents give equal archives.
constexpr std::uint64_t kDosDate = (0 << 9) | (1 << 5) | 1;
constexpr std::uint64_t kVersionNeeded = 20;

void Put(Bytes* out, std::uint64_t value, int width_bytes) {
  for (int i = 0; i < width_bytes; ++i) out->push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

// The fields that local and central records share, from "version needed" to "extra length".
void PutCommonFields(Bytes* out, const ZipSource& member) {
  Put(out, kVersionNeeded, 2);
  Put(out, 0, 2);  // flags
  Put(out, static_cast<std::uint64_t>(ZipMethod::kStored), 2);
  Put(out, 0, 2);  // time
  Put(out, kDosDate, 2);
  Put(out, crc32_z(0, member.content.data(), member.content.size()), 4);
  Put(out, member.content.size(), 4);
  Put(out, member.content.size(), 4);
  Put(out, member.name.size(), 2);
  Put(out, 0, 2);  // extra length
}

void PutText(Bytes* out, const std::string& text) {
  out->insert(out->end(), text.begin(), text.end());
}

void PutCentralRecord(Bytes* out, const ZipSource& member, std::uint64_t header_position) {
  Put(out, 0x02014b50, 4);
  Put(out, kVersionNeeded, 2);
  PutCommonFields(out, member);
  Put(out, 0, 2);  // comment length
  Put(out, 0, 2);  // disk
  Put(out, 0, 2);  // internal attributes
  Put(out, 0, 4);  // external attributes
  Put(out, header_position, 4);
  PutText(out, member.name);
}

}  // namespace

Bytes WriteZip(std::span<const ZipSource> members) {
  Bytes out;
  Bytes directory;
  for (const ZipSource& member : members) {
    // Leaves room for the records around the data below 4 GiB.
    constexpr std::uint64_t kLimitBytes = std::numeric_limits<std::uint32_t>::max() - (1 << 20);
    if (member.content.size() > kLimitBytes || out.size() > kLimitBytes - member.content.size()) {
      throw InputError("'" + member.name +
                       "': a .npz of 4 GiB and more is not supported; use .npy or .safetensors");
    }
    PutCentralRecord(&directory, member, out.size());
    Put(&out, 0x04034b50, 4);
    PutCommonFields(&out, member);
    PutText(&out, member.name);
    out.insert(out.end(), member.content.begin(), member.content.end());
  }
  const std::uint64_t directory_position = out.size();
  out.insert(out.end(), directory.begin(), directory.end());
  Put(&out, 0x06054b50, 4);
  Put(&out, 0, 2);  // this disk
  Put(&out, 0, 2);  // disk of the directory
  Put(&out, members.size(), 2);
  Put(&out, members.size(), 2);
  Put(&out, directory.size(), 4);
  Put(&out, directory_position, 4);
  Put(&out, 0, 2);  // comment length
  return out;
}

}  // namespace heed::tools
