// Kernel packs: compiled kernels in one file, made ahead of time, used without NVRTC.
//
//   "HEEDPAK1", length of the index (u64), SHA-256 of the index (32 bytes), index, records
//   index: digest of the kernel sources (32 bytes), library version, NVRTC version, number of
//          entries (u64); per entry: key (32 bytes), label, function, arch, offset and length of
//          its record in the file (u64 each)
//   record: image_record.h
#ifndef HEED_CUDA_PACK_H_
#define HEED_CUDA_PACK_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/os/files.h"
#include "core/status.h"
#include "cuda/image_key.h"

namespace heed::cuda {

struct PackFacts {
  core::Sha256Digest sources = {};  // that the images were compiled from
  std::string library_version;      // "0.1.0"
  std::string nvrtc_version;        // "13.0"
};

struct PackEntry {
  ImageKey key = {};
  std::string label;
  std::string function;
  std::string arch;
  std::uint64_t offset_bytes = 0;
  std::uint64_t num_bytes = 0;
};

// An opened pack: the index in memory, images read when asked for. Const use from any thread.
class Pack {
 public:
  // Checks the index, not the images. The message names the file and the fault.
  static core::Status Open(const std::string& path, std::shared_ptr<const Pack>* pack);

  const std::string& path() const { return path_; }
  const PackFacts& facts() const { return facts_; }
  // In the order they were built.
  const std::vector<PackEntry>& entries() const { return entries_; }
  // Null when the pack does not hold the kernel.
  const PackEntry* Find(const ImageKey& key) const;
  core::Status Read(const PackEntry& entry, KernelImage* image) const;
  // The images fill the file from the index to its end.
  core::Status CheckExtent() const;

 private:
  core::Status ReadIndex();

  std::string path_;
  core::os::RandomAccessFile file_;
  PackFacts facts_;
  std::uint64_t first_record_bytes_ = 0;  // offset
  std::vector<PackEntry> entries_;
  std::map<ImageKey, std::size_t> position_;
};

struct PackItem {
  ImageKey key = {};
  std::string label;
  std::string function;
  KernelImage image;
};

// The pack appears whole or not at all.
core::Status WritePack(const std::string& path, const PackFacts& facts,
                       const std::vector<PackItem>& items);

// HEED_PACK, else every *.heedpack beside the library, by name.
std::vector<std::string> PackPaths();

}  // namespace heed::cuda

#endif  // HEED_CUDA_PACK_H_
