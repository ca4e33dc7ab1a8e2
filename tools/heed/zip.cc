#include "zip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

// Field positions below are those of PKWARE's APPNOTE, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16.

namespace heed::tools {
namespace {

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocator64Signature = 0x07064b50;
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint64_t kCentralBytes = 46;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kLocator64Bytes = 20;
constexpr std::uint64_t kMaxCommentBytes = 65535;
constexpr std::uint64_t kIn64 = 0xffffffff;  // the value stands in the zip64 extra field
constexpr std::uint64_t kEncryptedFlag = 1;
// Deflate codes 258 bytes in 2 bits at best, plus a few bytes of block headers.
constexpr std::uint64_t kMaxDeflateRatio = 1032;

struct Directory {
  std::uint64_t position = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t num_members = 0;
};

std::uint64_t FindEnd(const ByteReader& file) {
  file.Require(0, kEndBytes, "zip end record");
  const std::uint64_t last = file.num_bytes() - kEndBytes;
  const std::uint64_t first = last > kMaxCommentBytes ? last - kMaxCommentBytes : 0;
  for (std::uint64_t position = last + 1; position-- > first;) {
    if (file.Unsigned(position, 4, "zip end record") == kEndSignature &&
        file.Unsigned(position + 20, 2, "zip comment length") == last - position) {
      return position;
    }
  }
  file.Fail("zip end record", "not found: truncated, or not a .npz file");
}

Directory FindDirectory(const ByteReader& file) {
  const std::uint64_t end = FindEnd(file);
  Directory directory{file.Unsigned(end + 16, 4, "zip directory offset"),
                      file.Unsigned(end + 12, 4, "zip directory size"),
                      file.Unsigned(end + 10, 2, "zip member count")};
  const bool has_locator =
      end >= kLocator64Bytes &&
      file.Unsigned(end - kLocator64Bytes, 4, "zip64 locator") == kLocator64Signature;
  if (has_locator) {
    const std::uint64_t end64 = file.Unsigned(end - kLocator64Bytes + 8, 8, "zip64 locator");
    file.Require(end64, kEnd64Bytes, "zip64 end record");
    if (file.Unsigned(end64, 4, "zip64 end record") != kEnd64Signature) {
      file.Fail("zip64 end record", "bad signature");
    }
    directory = {file.Unsigned(end64 + 48, 8, "zip64 directory offset"),
                 file.Unsigned(end64 + 40, 8, "zip64 directory size"),
                 file.Unsigned(end64 + 32, 8, "zip64 member count")};
  }
  file.Require(directory.position, directory.length_bytes, "zip directory");
  return directory;
}

// Replaces the fields that say "see zip64" with the extra field's values, in the format's order.
void ReadZip64Extra(const ByteReader& file, std::uint64_t extra, std::uint64_t extra_bytes,
                    ZipMember* member) {
  std::uint64_t* const fields[] = {&member->unpacked_bytes, &member->packed_bytes,
                                   &member->header_position};
  std::uint64_t position = extra;
  const std::uint64_t end = extra + extra_bytes;
  while (end - position >= 4) {
    const std::uint64_t id = file.Unsigned(position, 2, "zip extra field");
    const std::uint64_t payload_bytes = file.Unsigned(position + 2, 2, "zip extra field");
    position += 4;
    if (payload_bytes > end - position) file.Fail("zip extra field", "runs past its record");
    if (id == 1) {
      std::uint64_t read_bytes = 0;
      for (std::uint64_t* field : fields) {
        if (*field != kIn64 || read_bytes + 8 > payload_bytes) continue;
        *field = file.Unsigned(position + read_bytes, 8, "zip64 extra field");
        read_bytes += 8;
      }
      return;
    }
    position += payload_bytes;
  }
}

std::string MemberField(const ZipMember& member, const char* field) {
  return "member '" + Printable(member.name) + "' " + field;
}

// Sets data_position and checks that the local header tells the same story.
void CheckLocalHeader(const ByteReader& file, const Directory& directory, ZipMember* member) {
  const std::uint64_t local = member->header_position;
  file.Require(local, kLocalBytes, "zip local header");
  if (file.Unsigned(local, 4, "zip local header") != kLocalSignature) {
    file.Fail(MemberField(*member, "local header"), "bad signature");
  }
  const std::uint64_t name_bytes = file.Unsigned(local + 26, 2, "zip name length");
  const std::uint64_t extra_bytes = file.Unsigned(local + 28, 2, "zip extra length");
  if (file.Text(local + kLocalBytes, name_bytes, "zip local name") != member->name) {
    file.Fail(MemberField(*member, "local header"), "has another name than the directory");
  }
  member->data_position = local + kLocalBytes + name_bytes + extra_bytes;
  file.Require(member->data_position, member->packed_bytes, "zip member data");
  if (member->data_position + member->packed_bytes > directory.position) {
    file.Fail(MemberField(*member, "data"), "overlaps the zip directory");
  }
}

void CheckSizes(const ByteReader& file, const ZipMember& member) {
  const std::uint64_t limit_bytes = member.method == ZipMethod::kStored
                                        ? member.packed_bytes
                                        : member.packed_bytes * kMaxDeflateRatio;
  const bool is_reachable = member.method == ZipMethod::kStored
                                ? member.unpacked_bytes == limit_bytes
                                : member.unpacked_bytes <= limit_bytes;
  if (!is_reachable) {
    file.Fail(MemberField(member, "size"), std::to_string(member.packed_bytes) +
                                               " packed bytes cannot hold " +
                                               std::to_string(member.unpacked_bytes) + " bytes");
  }
}

void CheckOverlaps(const ByteReader& file, std::vector<ZipMember> members) {
  std::sort(members.begin(), members.end(), [](const ZipMember& a, const ZipMember& b) {
    return a.header_position < b.header_position;
  });
  for (std::size_t i = 1; i < members.size(); ++i) {
    if (members[i].header_position < members[i - 1].data_position + members[i - 1].packed_bytes) {
      file.Fail(MemberField(members[i], "data"),
                "overlaps member '" + Printable(members[i - 1].name) + "'");
    }
  }
}

// zlib's stream with its clean-up.
class Inflater {
 public:
  explicit Inflater(const ByteReader& file) {
    constexpr int kRawDeflate = -MAX_WBITS;
    if (inflateInit2(&stream_, kRawDeflate) != Z_OK) file.Fail("zlib", "cannot start");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream* get() { return &stream_; }

 private:
  z_stream stream_ = {};
};

// zlib counts in unsigned int: feed it pieces of at most this.
constexpr std::uint64_t kPieceBytes = 1 << 20;

// Grows the output with what really arrives, so a lying size costs no memory.
Bytes Inflate(const ByteReader& file, const ZipMember& member) {
  Inflater inflater(file);
  z_stream* stream = inflater.get();
  Bytes out;
  std::uint64_t fed_bytes = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    if (stream->avail_in == 0 && fed_bytes < member.packed_bytes) {
      const std::uint64_t piece = std::min(member.packed_bytes - fed_bytes, kPieceBytes);
      stream->next_in = const_cast<Bytef*>(file.At(member.data_position + fed_bytes));
      stream->avail_in = static_cast<uInt>(piece);
      fed_bytes += piece;
    }
    const std::uint64_t room = std::min(member.unpacked_bytes - out.size(), kPieceBytes);
    const std::size_t old_bytes = out.size();
    // One spare byte lets an over-long stream show itself.
    out.resize(old_bytes + room + 1);
    stream->next_out = out.data() + old_bytes;
    stream->avail_out = static_cast<uInt>(room + 1);
    result = inflate(stream, Z_NO_FLUSH);
    out.resize(out.size() - stream->avail_out);
    if (out.size() > member.unpacked_bytes) {
      file.Fail(MemberField(member, "data"), "unpacks to more than the declared " +
                                                 std::to_string(member.unpacked_bytes) + " bytes");
    }
  }
  if (result != Z_STREAM_END || out.size() != member.unpacked_bytes) {
    file.Fail(MemberField(member, "data"), "the deflate stream is damaged or ends early");
  }
  return out;
}

std::uint32_t Crc32(const std::uint8_t* data, std::uint64_t num_bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, data, num_bytes));
}

ZipMember ReadCentralRecord(const ByteReader& file, std::uint64_t position,
                            std::uint64_t* record_bytes) {
  file.Require(position, kCentralBytes, "zip directory record");
  if (file.Unsigned(position, 4, "zip directory record") != kCentralSignature) {
    file.Fail("zip directory record", "bad signature at byte " + std::to_string(position));
  }
  const std::uint64_t name_bytes = file.Unsigned(position + 28, 2, "zip name length");
  const std::uint64_t extra_bytes = file.Unsigned(position + 30, 2, "zip extra length");
  const std::uint64_t comment_bytes = file.Unsigned(position + 32, 2, "zip comment length");
  *record_bytes = kCentralBytes + name_bytes + extra_bytes + comment_bytes;
  file.Require(position, *record_bytes, "zip directory record");

  ZipMember member;
  member.name = file.Text(position + kCentralBytes, name_bytes, "zip name");
  member.crc32 = static_cast<std::uint32_t>(file.Unsigned(position + 16, 4, "zip crc"));
  member.packed_bytes = file.Unsigned(position + 20, 4, "zip packed size");
  member.unpacked_bytes = file.Unsigned(position + 24, 4, "zip size");
  member.header_position = file.Unsigned(position + 42, 4, "zip member offset");
  ReadZip64Extra(file, position + kCentralBytes + name_bytes, extra_bytes, &member);

  if ((file.Unsigned(position + 8, 2, "zip flags") & kEncryptedFlag) != 0) {
    file.Fail(MemberField(member, "flags"), "encrypted members are not supported");
  }
  const std::uint64_t method = file.Unsigned(position + 10, 2, "zip method");
  if (method != 0 && method != 8) {
    file.Fail(MemberField(member, "method") + " = " + std::to_string(method),
              "must be 0 (stored) or 8 (deflated)");
  }
  member.method = static_cast<ZipMethod>(method);
  return member;
}

}  // namespace

std::vector<ZipMember> ReadZipDirectory(const ByteReader& file) {
  const Directory directory = FindDirectory(file);
  std::vector<ZipMember> members;
  std::set<std::string> names;
  std::uint64_t position = directory.position;
  const std::uint64_t end = directory.position + directory.length_bytes;
  for (std::uint64_t i = 0; i < directory.num_members; ++i) {
    std::uint64_t record_bytes = 0;
    ZipMember member = ReadCentralRecord(file, position, &record_bytes);
    position += record_bytes;
    if (position > end) file.Fail("zip directory size", "smaller than its records");
    CheckLocalHeader(file, directory, &member);
    CheckSizes(file, member);
    if (!names.insert(member.name).second) {
      file.Fail(MemberField(member, "name"), "given twice");
    }
    members.push_back(std::move(member));
  }
  CheckOverlaps(file, members);
  return members;
}

Bytes UnpackZipMember(const ByteReader& file, const ZipMember& member) {
  const std::uint8_t* packed = file.At(member.data_position);
  Bytes content = member.method == ZipMethod::kStored ? Bytes(packed, packed + member.packed_bytes)
                                                      : Inflate(file, member);
  if (Crc32(content.data(), content.size()) != member.crc32) {
    file.Fail(MemberField(member, "data"), "does not match its CRC-32");
  }
  return content;
}

}  // namespace heed::tools
