// What the tool asks of the operating system: files that appear whole or not at all, the terminal,
// and its own memory use.
#ifndef HEED_TOOLS_OS_H_
#define HEED_TOOLS_OS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace heed::tools::os {

// A whole regular file, mapped read-only. Throws InputError.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::uint8_t* bytes() const { return bytes_; }
  std::size_t num_bytes() const { return num_bytes_; }

 private:
  const std::uint8_t* bytes_ = nullptr;
  std::size_t num_bytes_ = 0;
};

// Writes beside `path` under a temporary name; Commit() renames. Uncommitted files disappear, also
// when SIGINT, SIGTERM or SIGHUP ends the process. Throws InputError.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Write(const void* data, std::size_t num_bytes);
  // After this every byte is on disk, still under the temporary name.
  void Close();
  void Commit();

 private:
  std::string path_;
  std::string temporary_path_;
  int descriptor_ = -1;
};

// Call once, before the first AtomicFile.
void RemoveTemporariesOnSignal();

bool StderrIsTerminal();
// Monotonic seconds.
double NowSeconds();
// CPU time that all threads of this process have used.
double ProcessCpuSeconds();
// Memory that could be used without swapping; 0 where the system does not say.
std::size_t AvailableMemoryBytes();
// What of it a measurement may take: one that makes the machine swap measures the disk.
inline constexpr double kUsableMemoryShare = 0.85;

// High-water mark of resident memory since the last reset; empty where the kernel cannot reset it.
class PeakMemory {
 public:
  PeakMemory();
  std::optional<std::size_t> GrowthBytes() const;

 private:
  std::optional<std::size_t> start_bytes_;
};

}  // namespace heed::tools::os

#endif  // HEED_TOOLS_OS_H_
