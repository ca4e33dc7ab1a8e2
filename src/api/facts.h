// What this machine offers, as the planner wants it.
#ifndef HEED_API_FACTS_H_
#define HEED_API_FACTS_H_

#include "core/plan.h"
#include "core/tune/table.h"

namespace heed::api {

// Reads the CPU, the affinity mask, HEED_NUM_THREADS and HEED_CPU_TARGET, or the GPU, and finds the
// choices that heed_tune stored for the device.
// Errors: HEED_INVALID_ARGUMENT when one of the two variables or HEED_SPIN_US has no legal value.
core::Status ReadFacts(const core::ExecOptions& exec, core::DeviceFacts* facts);

// What stored choices of a device are filed under.
core::Status IdentifyDevice(const core::ExecOptions& exec, core::tune::Identity* identity);

// HEED_CPU_TARGET; kNone when unset.
core::Status ReadForcedTarget(core::CpuTarget* forced);
// HEED_NUM_THREADS; 0 when unset.
core::Status ReadForcedThreads(std::int32_t* num_threads);
// Fails when HEED_SPIN_US is not what the thread pool takes.
core::Status CheckSpinTime();

}  // namespace heed::api

#endif  // HEED_API_FACTS_H_
