#include "core/tune/store.h"

#include "core/cache_folder.h"
#include "core/log.h"
#include "core/os/files.h"

namespace heed::core::tune {
namespace {

// A record has some 500 bytes; whatever is larger is none.
constexpr std::size_t kMaxRecordBytes = 4096;
// Of a folder with more files than this the first ones are read: the first call of a process waits.
constexpr std::size_t kMaxRecords = 4096;

std::vector<std::string> RecordPaths(const std::string& folder) {
  std::vector<std::string> paths;
  for (const std::string& name : os::ListFolder(folder)) {
    if (name.ends_with(kRecordSuffix)) paths.push_back(folder + "/" + name);
  }
  return paths;
}

Status Unwritable(const std::string& reason) {
  return {HEED_UNAVAILABLE, "tuning cannot be stored: " + reason};
}

// Gives why the file is ignored, or nothing and the record.
std::string ReadRecord(const std::string& path, Record* record) {
  std::string text, error;
  switch (os::ReadWholeFile(path, os::FileTrust::kOwnOnly, kMaxRecordBytes, &text, &error)) {
    case os::ReadOutcome::kMissing:
      return path + ": is gone";
    case os::ReadOutcome::kFailed:
      return error;
    case os::ReadOutcome::kRead:
      break;
  }
  const std::string fault = DecodeRecord(text, record);
  return fault.empty() ? std::string() : path + ": " + fault;
}

}  // namespace

Status FindFolder(std::string* folder) {
  std::string reason;
  const std::string cache = CacheFolder(&reason);
  if (cache.empty()) return Unwritable(reason);
  *folder = cache + "/tune";
  return {};
}

std::vector<Record> ReadRecords() {
  std::string folder;
  if (!FindFolder(&folder).ok()) return {};
  std::vector<std::string> paths = RecordPaths(folder);
  if (paths.size() > kMaxRecords) {
    Log(LogLevel::kWarn, Format("tuning: %s: holds %zu files, of which %zu are read; heed tune "
                                "--clear removes them",
                                folder.c_str(), paths.size(), kMaxRecords));
    paths.resize(kMaxRecords);
  }
  std::vector<Record> records;
  for (const std::string& path : paths) {
    Record record;
    const std::string fault = ReadRecord(path, &record);
    if (fault.empty()) {
      records.push_back(std::move(record));
    } else {
      Log(LogLevel::kWarn, "tuning: " + fault + "; ignored");
    }
  }
  return records;
}

Status CheckWritable() {
  std::string folder, error;
  HEED_RETURN_IF_ERROR(FindFolder(&folder));
  if (os::EnsurePrivateFolder(folder, &error) && os::CanWriteFile(folder + "/probe", &error)) {
    return {};
  }
  return Unwritable(error);
}

Status WriteRecord(const Record& record) {
  std::string folder, error;
  HEED_RETURN_IF_ERROR(FindFolder(&folder));
  if (os::EnsurePrivateFolder(folder, &error) &&
      os::WriteFileAtomically(folder + "/" + RecordFileName(record), EncodeRecord(record),
                              os::FileAccess::kOwnerOnly, &error)) {
    return {};
  }
  return Unwritable(error);
}

Status RemoveRecords(std::int64_t* num_removed) {
  std::string folder, error;
  *num_removed = 0;
  HEED_RETURN_IF_ERROR(FindFolder(&folder));
  for (const std::string& path : RecordPaths(folder)) {
    if (os::RemoveFile(path, &error)) {
      ++*num_removed;
    } else if (os::IsRegularFile(path)) {
      return {HEED_UNAVAILABLE, "tuning cannot be removed: " + error};
    }  // else a folder, which is not heed's
  }
  return {};
}

}  // namespace heed::core::tune
