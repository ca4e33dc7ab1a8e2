#include "cuda/pack.h"

#include "core/os/dynamic_library.h"
#include "core/os/os.h"
#include "cuda/byte_fields.h"
#include "cuda/image_record.h"

namespace heed::cuda {
namespace {

using core::Format;
using core::Status;

constexpr std::string_view kMagic = "HEEDPAK1";
constexpr std::size_t kHeaderBytes = 8 + 8 + 32;
// Some hundred bytes an entry: whatever is larger is not an index.
constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{64} << 20;

Status Bad(const std::string& path, const char* fault) {
  return core::InvalidArgument(Format("%s: %s", path.c_str(), fault));
}

bool TakeEntry(FieldReader* reader, PackEntry* entry) {
  return reader->TakeDigest(&entry->key) && reader->TakeText(&entry->label) &&
         reader->TakeText(&entry->function) && reader->TakeText(&entry->arch) &&
         reader->TakeU64(&entry->offset_bytes) && reader->TakeU64(&entry->num_bytes);
}

void AppendEntry(std::string* index, const PackItem& item, std::uint64_t offset_bytes,
                 std::uint64_t num_bytes) {
  AppendDigest(index, item.key);
  AppendText(index, item.label);
  AppendText(index, item.function);
  AppendText(index, item.image.arch);
  AppendU64(index, offset_bytes);
  AppendU64(index, num_bytes);
}

// Offsets are fixed-width, so the index has the same length whatever `first_offset_bytes` is.
std::string EncodeIndex(const PackFacts& facts, const std::vector<PackItem>& items,
                        const std::vector<std::string>& records, std::uint64_t first_offset_bytes) {
  std::string index;
  AppendDigest(&index, facts.sources);
  AppendText(&index, facts.library_version);
  AppendText(&index, facts.nvrtc_version);
  AppendU64(&index, items.size());
  std::uint64_t offset_bytes = first_offset_bytes;
  for (std::size_t i = 0; i < items.size(); ++i) {
    AppendEntry(&index, items[i], offset_bytes, records[i].size());
    offset_bytes += records[i].size();
  }
  return index;
}

}  // namespace

Status Pack::Open(const std::string& path, std::shared_ptr<const Pack>* pack) {
  auto opened = std::make_shared<Pack>();
  opened->path_ = path;
  std::string error;
  if (!opened->file_.Open(path, &error)) return core::InvalidArgument(error);
  HEED_RETURN_IF_ERROR(opened->ReadIndex());
  *pack = std::move(opened);
  return {};
}

Status Pack::ReadIndex() {
  std::string header, index;
  if (!file_.ReadAt(0, kHeaderBytes, &header) || !header.starts_with(kMagic)) {
    return Bad(path_, "is not a kernel pack of this format");
  }
  FieldReader header_reader(std::string_view(header).substr(kMagic.size()));
  std::uint64_t index_bytes = 0;
  core::Sha256Digest checksum;
  header_reader.TakeU64(&index_bytes);
  header_reader.TakeDigest(&checksum);
  if (index_bytes > kMaxIndexBytes || !file_.ReadAt(kHeaderBytes, index_bytes, &index)) {
    return Bad(path_, "is cut short");
  }
  first_record_bytes_ = kHeaderBytes + index_bytes;
  if (core::Sha256Of(index) != checksum) return Bad(path_, "its index is damaged");
  FieldReader reader(index);
  std::uint64_t num_entries = 0;
  bool is_whole = reader.TakeDigest(&facts_.sources) && reader.TakeText(&facts_.library_version) &&
                  reader.TakeText(&facts_.nvrtc_version) && reader.TakeU64(&num_entries);
  for (std::uint64_t i = 0; is_whole && i < num_entries; ++i) {
    PackEntry entry;
    is_whole = TakeEntry(&reader, &entry);
    if (!is_whole) break;
    position_.emplace(entry.key, entries_.size());
    entries_.push_back(std::move(entry));
  }
  // The checksum holds, so only a writer's mistake can do this.
  return is_whole && reader.num_bytes_left() == 0 ? Status() : Bad(path_, "its index is malformed");
}

const PackEntry* Pack::Find(const ImageKey& key) const {
  const auto found = position_.find(key);
  return found == position_.end() ? nullptr : &entries_[found->second];
}

Status Pack::Read(const PackEntry& entry, KernelImage* image) const {
  std::string record;
  std::string fault;
  if (!file_.ReadAt(entry.offset_bytes, entry.num_bytes, &record)) {
    fault = "is cut short";
  } else {
    fault = DecodeImage(record, entry.key, image);
  }
  if (!fault.empty()) {
    return core::InvalidArgument(Format("%s: the image of %s for sm_%s %s", path_.c_str(),
                                        entry.label.c_str(), entry.arch.c_str(), fault.c_str()));
  }
  image->origin = KernelImage::Origin::kPack;
  return {};
}

Status Pack::CheckExtent() const {
  std::uint64_t end = first_record_bytes_;
  for (const PackEntry& entry : entries_) {
    if (entry.offset_bytes != end) {
      return Bad(path_, "has bytes between its images, or images that share bytes");
    }
    end += entry.num_bytes;
  }
  if (file_.num_bytes() <= end) return {};  // reading finds out what is missing
  return core::InvalidArgument(Format("%s: goes on for %llu bytes after its last image",
                                      path_.c_str(),
                                      static_cast<unsigned long long>(file_.num_bytes() - end)));
}

Status WritePack(const std::string& path, const PackFacts& facts,
                 const std::vector<PackItem>& items) {
  std::vector<std::string> records;
  records.reserve(items.size());
  for (const PackItem& item : items) records.push_back(EncodeImage(item.key, item.image));
  const std::size_t index_bytes = EncodeIndex(facts, items, records, 0).size();
  const std::string index = EncodeIndex(facts, items, records, kHeaderBytes + index_bytes);
  std::string content(kMagic);
  AppendU64(&content, index.size());
  AppendDigest(&content, core::Sha256Of(index));
  content += index;
  for (const std::string& record : records) content += record;
  std::string error;
  if (!core::os::WriteFileAtomically(path, content, core::os::FileAccess::kByUmask, &error)) {
    return core::InvalidArgument(error);
  }
  return {};
}

std::vector<std::string> PackPaths() {
  const std::string named = core::os::Environment("HEED_PACK");
  if (!named.empty()) return {named};
  static constexpr int kHere = 0;
  const std::string library = core::os::PathOfLibraryWith(&kHere);
  const std::size_t slash = library.rfind('/');
  if (slash == std::string::npos) return {};
  const std::string folder = library.substr(0, slash);
  std::vector<std::string> paths;
  for (const std::string& name : core::os::ListFolder(folder)) {
    if (name.ends_with(".heedpack")) paths.push_back(folder + "/" + name);
  }
  return paths;
}

}  // namespace heed::cuda
