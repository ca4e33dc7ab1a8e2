// What this machine offers, as the planner wants it.
#ifndef HEED_API_FACTS_H_
#define HEED_API_FACTS_H_

#include "core/plan.h"

namespace heed::api {

// Reads the CPU, the affinity mask, HEED_NUM_THREADS and HEED_CPU_TARGET.
// Errors: HEED_INVALID_ARGUMENT when HEED_CPU_TARGET names no target.
core::Status ReadFacts(core::DeviceFacts* facts);

}  // namespace heed::api

#endif  // HEED_API_FACTS_H_
