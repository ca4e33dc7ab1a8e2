#include "tensor_file.h"
#include "zip.h"

namespace heed::tools {
namespace {

constexpr std::string_view kSuffix = ".npy";

}  // namespace

bool KeepAll(std::string_view) { return true; }

std::vector<NamedTensor> ParseNpz(const std::uint8_t* bytes, std::size_t num_bytes,
                                  const std::string& origin, const NameFilter& keep) {
  const ByteReader file(bytes, num_bytes, origin);
  std::vector<NamedTensor> tensors;
  for (const ZipMember& member : ReadZipDirectory(file)) {
    if (!member.name.ends_with(kSuffix)) continue;
    const std::string name = member.name.substr(0, member.name.size() - kSuffix.size());
    if (!keep(name)) continue;
    const Bytes content = UnpackZipMember(file, member);
    tensors.push_back(
        {name, ParseNpy(content.data(), content.size(), origin + ":" + Printable(name))});
  }
  return tensors;
}

Bytes SerializeNpz(std::span<const NamedTensor> tensors) {
  std::vector<ZipSource> members;
  for (const NamedTensor& named : tensors) {
    members.push_back({named.name + std::string(kSuffix), SerializeNpy(named.tensor)});
  }
  return WriteZip(members);
}

}  // namespace heed::tools
