// Timing the materialised baseline on the inputs of a case.
#ifndef HEED_TOOLS_TIMING_MEASURE_PLAIN_H_
#define HEED_TOOLS_TIMING_MEASURE_PLAIN_H_

#include "measure.h"
#include "tools/heed/call.h"

namespace heed::tools {

// Runs in fp32 whatever the case's type; the conversion is not timed. `outputs` holds the kernel's
// result, for comparison.
PlainResult MeasurePlain(const BenchCase& bench_case, const Inputs& inputs, const Outputs& outputs);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_MEASURE_PLAIN_H_
