#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "errors.h"
#include "os.h"
#include "tensor.h"

namespace heed::tools::os {
namespace {

[[noreturn]] void FailWithErrno(const std::string& path, const char* action) {
  throw InputError(Printable(path) + ": cannot " + action + ": " + std::strerror(errno));
}

// Closes on every way out of a scope.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

// Temporary names that a signal handler may have to unlink: slots of fixed storage, because a
// handler may not allocate or lock. The tool writes three files at most at a time.
constexpr std::size_t kMaxTemporaries = 8;
constexpr std::size_t kMaxPathBytes = 4096;
struct TemporarySlot {
  std::atomic<bool> in_use = false;
  char path[kMaxPathBytes] = {};
};
std::array<TemporarySlot, kMaxTemporaries> g_temporaries;

void Register(const std::string& path) {
  for (TemporarySlot& slot : g_temporaries) {
    if (slot.in_use) continue;
    std::memcpy(slot.path, path.c_str(), path.size() + 1);
    slot.in_use = true;
    return;
  }
  throw InputError(Printable(path) + ": too many output files at a time");
}

void Unregister(const std::string& path) {
  for (TemporarySlot& slot : g_temporaries) {
    if (slot.in_use && path == slot.path) slot.in_use = false;
  }
}

// Ends the process by the same signal, so that shells see what happened.
extern "C" void RemoveTemporariesAndDie(int signal_number) {
  for (TemporarySlot& slot : g_temporaries) {
    if (slot.in_use) unlink(slot.path);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) FailWithErrno(path, "open");
  struct stat status = {};
  if (fstat(file.value, &status) != 0) FailWithErrno(path, "stat");
  if (!S_ISREG(status.st_mode)) throw InputError(Printable(path) + ": not a regular file");
  num_bytes_ = static_cast<std::size_t>(status.st_size);
  if (num_bytes_ == 0) return;  // an empty mapping is an error to mmap
  void* mapping = mmap(nullptr, num_bytes_, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (mapping == MAP_FAILED) FailWithErrno(path, "map");
  bytes_ = static_cast<const std::uint8_t*>(mapping);
}

MappedFile::~MappedFile() {
  if (bytes_ != nullptr) munmap(const_cast<std::uint8_t*>(bytes_), num_bytes_);
}

AtomicFile::AtomicFile(const std::string& path)
    : path_(path), temporary_path_(path + ".tmp." + std::to_string(getpid())) {
  if (temporary_path_.size() >= kMaxPathBytes) throw InputError(Printable(path) + ": too long");
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw InputError(Printable(path) + ": not a regular file");
  }
  Register(temporary_path_);
  descriptor_ = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    Unregister(temporary_path_);
    FailWithErrno(path, "create");
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (temporary_path_.empty()) return;
  unlink(temporary_path_.c_str());
  Unregister(temporary_path_);
}

void AtomicFile::Write(const void* data, std::size_t num_bytes) {
  const char* next = static_cast<const char*>(data);
  while (num_bytes > 0) {
    const ssize_t written = write(descriptor_, next, num_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) FailWithErrno(path_, "write");
    next += written;
    num_bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::Close() {
  if (fsync(descriptor_) != 0) FailWithErrno(path_, "write");
  const int result = close(descriptor_);
  descriptor_ = -1;
  if (result != 0) FailWithErrno(path_, "write");
}

void AtomicFile::Commit() {
  if (descriptor_ >= 0) Close();
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) FailWithErrno(path_, "rename to");
  Unregister(temporary_path_);
  temporary_path_.clear();
}

void RemoveTemporariesOnSignal() {
  struct sigaction action = {};
  action.sa_handler = RemoveTemporariesAndDie;
  sigemptyset(&action.sa_mask);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    sigaction(signal_number, &action, nullptr);
  }
}

}  // namespace heed::tools::os
