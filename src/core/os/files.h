// Files and folders. Nothing here throws; failures come back as the system's reason in words.
#ifndef HEED_CORE_OS_FILES_H_
#define HEED_CORE_OS_FILES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heed::core::os {

enum class FileTrust : std::uint8_t {
  kAnyOwner,  // the caller named the file
  kOwnOnly    // refused unless it belongs to this user and nobody else may write to it
};

enum class ReadOutcome : std::uint8_t { kRead, kMissing, kFailed };

// The whole of a regular file of at most max_bytes. *error is set for kFailed.
ReadOutcome ReadWholeFile(const std::string& path, FileTrust trust, std::size_t max_bytes,
                          std::string* content, std::string* error);

// A regular file kept open: what is read stays that of one file even when another one takes its
// name.
class RandomAccessFile {
 public:
  RandomAccessFile() = default;
  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&&) = delete;
  ~RandomAccessFile();

  // False, with the reason, when there is no such file.
  bool Open(const std::string& path, std::string* error);
  std::uint64_t num_bytes() const { return num_bytes_; }
  // False when fewer bytes are there.
  bool ReadAt(std::uint64_t offset_bytes, std::size_t num_bytes, std::string* content) const;

 private:
  int descriptor_ = -1;
  std::uint64_t num_bytes_ = 0;
};

// The file appears whole or not at all: written beside it under a temporary name of its own,
// flushed to the disk, then renamed.
// False, with the reason and without leavings, when that fails.
enum class FileAccess : std::uint8_t { kOwnerOnly, kByUmask };
bool WriteFileAtomically(const std::string& path, std::string_view content, FileAccess access,
                         std::string* error);

// Whether WriteFileAtomically could begin: for work that takes long before it writes.
bool CanWriteFile(const std::string& path, std::string* error);

// Creates the folder and its parents, readable by the owner only. True when it is there afterwards,
// belongs to this user and nobody else may write to it.
bool EnsurePrivateFolder(const std::string& path, std::string* error);

// Names in a folder, sorted, without "." and ".."; empty when it cannot be read.
std::vector<std::string> ListFolder(const std::string& path);
bool IsRegularFile(const std::string& path);
// A file, link or pipe, but no folder. True when it is gone afterwards, whoever removed it.
bool RemoveFile(const std::string& path, std::string* error);

// Appends in one write, so that lines of several processes do not mix. "" means standard error.
bool AppendToFile(const std::string& path, std::string_view text);

}  // namespace heed::core::os

#endif  // HEED_CORE_OS_FILES_H_
