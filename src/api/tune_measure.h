// Timing the rows of a call side by side.
#ifndef HEED_API_TUNE_MEASURE_H_
#define HEED_API_TUNE_MEASURE_H_

#include <string>
#include <vector>

#include "api/tune_call.h"
#include "core/tune/rounds.h"

namespace heed::api {

struct TuneEffort {
  std::int32_t num_rounds = 7;
  // Long enough that starting and waiting for a GPU are lost in it, and a clock's granularity.
  double slice_seconds = 0.01;
};

struct MeasuredRow {
  const core::KernelRow* row = nullptr;
  heed_tune_verdict_t verdict = HEED_TUNE_DEFAULT;
  core::tune::RowTiming timing;
  std::string reason;
  bool is_chosen = false;
};

// Requires: call.Start(). The default row is the first; errors are its.
core::Status MeasureRows(TuneCall* call, const TuneEffort& effort, std::vector<MeasuredRow>* rows);

}  // namespace heed::api

#endif  // HEED_API_TUNE_MEASURE_H_
