#include <zlib.h>

#include <limits>

#include "byte_writer.h"
#include "zip.h"

namespace heed::tools {
namespace {

// 1980-01-01, the format's zero: equal contents give equal archives.
constexpr std::uint64_t kDosDate = (0 << 9) | (1 << 5) | 1;
constexpr std::uint64_t kVersionNeeded = 20;

// The fields that local and central records share, from "version needed" to "extra length".
void PutCommonFields(ByteWriter* out, const ZipSource& member) {
  out->Unsigned(kVersionNeeded, 2);
  out->Unsigned(0, 2);  // flags
  out->Unsigned(static_cast<std::uint64_t>(ZipMethod::kStored), 2);
  out->Unsigned(0, 2);  // time
  out->Unsigned(kDosDate, 2);
  out->Unsigned(crc32_z(0, member.content.data(), member.content.size()), 4);
  out->Unsigned(member.content.size(), 4);
  out->Unsigned(member.content.size(), 4);
  out->Unsigned(member.name.size(), 2);
  out->Unsigned(0, 2);  // extra length
}

void PutCentralRecord(ByteWriter* out, const ZipSource& member, std::uint64_t header_position) {
  out->Unsigned(0x02014b50, 4);
  out->Unsigned(kVersionNeeded, 2);
  PutCommonFields(out, member);
  out->Unsigned(0, 2);  // comment length
  out->Unsigned(0, 2);  // disk
  out->Unsigned(0, 2);  // internal attributes
  out->Unsigned(0, 4);  // external attributes
  out->Unsigned(header_position, 4);
  out->Text(member.name);
}

}  // namespace

Bytes WriteZip(std::span<const ZipSource> members) {
  ByteWriter out;
  ByteWriter directory_writer;
  for (const ZipSource& member : members) {
    // Leaves room for the records around the data below 4 GiB.
    constexpr std::uint64_t kLimitBytes = std::numeric_limits<std::uint32_t>::max() - (1 << 20);
    if (member.content.size() > kLimitBytes ||
        out.num_bytes() > kLimitBytes - member.content.size()) {
      throw InputError("'" + member.name +
                       "': a .npz of 4 GiB and more is not supported; use .npy or .safetensors");
    }
    PutCentralRecord(&directory_writer, member, out.num_bytes());
    out.Unsigned(0x04034b50, 4);
    PutCommonFields(&out, member);
    out.Text(member.name);
    out.Raw(member.content);
  }
  const std::uint64_t directory_position = out.num_bytes();
  const Bytes directory = directory_writer.Take();
  out.Raw(directory);
  out.Unsigned(0x06054b50, 4);
  out.Unsigned(0, 2);  // this disk
  out.Unsigned(0, 2);  // disk of the directory
  out.Unsigned(members.size(), 2);
  out.Unsigned(members.size(), 2);
  out.Unsigned(directory.size(), 4);
  out.Unsigned(directory_position, 4);
  out.Unsigned(0, 2);  // comment length
  return out.Take();
}

}  // namespace heed::tools
