// One stored choice as a small text file. docs/tune.md shows one.
#ifndef HEED_CORE_TUNE_RECORD_H_
#define HEED_CORE_TUNE_RECORD_H_

#include <string>
#include <string_view>

#include "core/tune/problem_class.h"

namespace heed::core::tune {

struct Record {
  std::string device;   // "cuda: NVIDIA H200, sm_90, 132 multiprocessors"
  std::string library;  // version and a digest of the rows and kernels that were measured
  ProblemClass problem;
  std::string kernel_id;
  std::string default_id;       // the planner's own choice; the same id where nothing was faster
  double kernel_seconds = 0.0;  // median of one call
  double default_seconds = 0.0;
};

// The text with everything but printable ASCII replaced: names that a driver or processor gives
// stand on one line.
std::string OneLine(std::string text);

// Of the records of one device, library and class there is one: its file name, without a folder.
std::string RecordFileName(const Record& record);
inline constexpr std::string_view kRecordSuffix = ".heedtune";

std::string EncodeRecord(const Record& record);
// Gives what is wrong with the text, or nothing and the record.
std::string DecodeRecord(std::string_view text, Record* record);

}  // namespace heed::core::tune

#endif  // HEED_CORE_TUNE_RECORD_H_
