// Records on disk: one file each below the cache folder, so that processes never wait for each
// other and a bad file spoils one choice only.
#ifndef HEED_CORE_TUNE_STORE_H_
#define HEED_CORE_TUNE_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/tune/record.h"

namespace heed::core::tune {

// Every sound record. Bad files are left out and named in HEED_LOG.
std::vector<Record> ReadRecords();

// Where records lie. Errors: HEED_UNAVAILABLE when no variable names a cache folder.
Status FindFolder(std::string* folder);
// Errors: HEED_UNAVAILABLE when the folder cannot be written to.
Status CheckWritable();
// Replaces the record of the same device, library and class.
Status WriteRecord(const Record& record);
// Removes every record, of whatever device and library, and what bears a record's name but is none.
Status RemoveRecords(std::int64_t* num_removed);

}  // namespace heed::core::tune

#endif  // HEED_CORE_TUNE_STORE_H_
