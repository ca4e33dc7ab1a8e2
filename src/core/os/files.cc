#include "core/os/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

namespace heed::core::os {
namespace {

std::string Reason(const std::string& path, const char* action) {
  return path + ": cannot " + action + ": " + std::strerror(errno);
}

// Closes on every way out of a scope.
struct Descriptor {
  int value = -1;
  explicit Descriptor(int descriptor) : value(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

// Empty when only this user can have put it there or changed it.
std::string WhyNotOwn(const std::string& path, const struct stat& status) {
  if (status.st_uid != geteuid()) return path + ": belongs to another user";
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return path + ": others may write to it";
  return {};
}

bool ReadAll(int descriptor, std::string* content) {
  std::size_t num_read = 0;
  while (num_read < content->size()) {
    const ssize_t got = read(descriptor, content->data() + num_read, content->size() - num_read);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;  // shorter than it was a moment ago
    num_read += static_cast<std::size_t>(got);
  }
  content->resize(num_read);
  return true;
}

bool WriteAll(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// Unlike any other of this or another process on this machine, and on a shared disk unlikely to be.
std::string TemporaryName(const std::string& path) {
  static std::atomic<unsigned> counter = 0;
  struct timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return path + ".tmp." + std::to_string(getpid()) + "." + std::to_string(counter++) + "." +
         std::to_string(now.tv_nsec);
}

}  // namespace

ReadOutcome ReadWholeFile(const std::string& path, FileTrust trust, std::size_t max_bytes,
                          std::string* content, std::string* error) {
  // A pipe in place of the file must not make the caller wait.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.value < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return ReadOutcome::kMissing;
    *error = Reason(path, "open");
    return ReadOutcome::kFailed;
  }
  struct stat status = {};
  if (fstat(file.value, &status) != 0) {
    *error = Reason(path, "stat");
    return ReadOutcome::kFailed;
  }
  if (!S_ISREG(status.st_mode)) {
    *error = path + ": not a regular file";
    return ReadOutcome::kFailed;
  }
  if (trust == FileTrust::kOwnOnly) {
    *error = WhyNotOwn(path, status);
    if (!error->empty()) return ReadOutcome::kFailed;
  }
  if (static_cast<std::uintmax_t>(status.st_size) > max_bytes) {
    *error = path + ": larger than " + std::to_string(max_bytes) + " bytes";
    return ReadOutcome::kFailed;
  }
  content->resize(static_cast<std::size_t>(status.st_size));
  if (!ReadAll(file.value, content)) {
    *error = Reason(path, "read");
    return ReadOutcome::kFailed;
  }
  return ReadOutcome::kRead;
}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), num_bytes_(other.num_bytes_) {}

RandomAccessFile::~RandomAccessFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool RandomAccessFile::Open(const std::string& path, std::string* error) {
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status = {};
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) {
    *error = Reason(path, "open");
    return false;
  }
  if (!S_ISREG(status.st_mode)) {
    *error = path + ": not a regular file";
    return false;
  }
  num_bytes_ = static_cast<std::uint64_t>(status.st_size);
  return true;
}

bool RandomAccessFile::ReadAt(std::uint64_t offset_bytes, std::size_t num_bytes,
                              std::string* content) const {
  if (offset_bytes > num_bytes_ || num_bytes > num_bytes_ - offset_bytes) return false;
  content->resize(num_bytes);
  for (std::size_t num_read = 0; num_read < num_bytes;) {
    const ssize_t got = pread(descriptor_, content->data() + num_read, num_bytes - num_read,
                              static_cast<off_t>(offset_bytes + num_read));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    num_read += static_cast<std::size_t>(got);
  }
  return true;
}

bool WriteFileAtomically(const std::string& path, std::string_view content, FileAccess access,
                         std::string* error) {
  const std::string temporary = TemporaryName(path);
  const mode_t mode = access == FileAccess::kOwnerOnly ? 0600 : 0666;
  {
    const Descriptor file(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
    if (file.value < 0) {
      *error = Reason(path, "create");
      return false;
    }
    if (!WriteAll(file.value, content) || fsync(file.value) != 0) {
      *error = Reason(path, "write");
      unlink(temporary.c_str());
      return false;
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    *error = Reason(path, "rename to");
    unlink(temporary.c_str());
    return false;
  }
  return true;
}

bool CanWriteFile(const std::string& path, std::string* error) {
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    *error = path + ": not a regular file";
    return false;
  }
  const std::string temporary = TemporaryName(path);
  const Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.value < 0) {
    *error = Reason(path, "create");
    return false;
  }
  unlink(temporary.c_str());
  return true;
}

bool EnsurePrivateFolder(const std::string& path, std::string* error) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      // A parent that is there may forbid even asking; only the whole path decides.
      if (end == std::string::npos) {
        *error = Reason(path, "create");
        return false;
      }
    }
    if (end == std::string::npos) break;
  }
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) {
    *error = Reason(path, "stat");
    return false;
  }
  if (!S_ISDIR(status.st_mode)) {
    *error = path + ": not a folder";
    return false;
  }
  *error = WhyNotOwn(path, status);
  return error->empty();
}

std::vector<std::string> ListFolder(const std::string& path) {
  std::vector<std::string> names;
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

bool IsRegularFile(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool RemoveFile(const std::string& path, std::string* error) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return true;
  *error = Reason(path, "remove");
  return false;
}

bool AppendToFile(const std::string& path, std::string_view text) {
  if (path.empty()) return WriteAll(STDERR_FILENO, text);
  const Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
  return file.value >= 0 && WriteAll(file.value, text);
}

}  // namespace heed::core::os
