// Every operating-system call of the library: CPU detection, aligned memory, environment.
// (Threads live in core/os/thread_pool.h.) A port to another system touches this folder only.
#ifndef HEED_CORE_OS_OS_H_
#define HEED_CORE_OS_OS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/registry.h"

namespace heed::core::os {

// Runs here, by CPUID / HWCAP and the operating system's own enabling (XGETBV), not by build flags.
bool HasCpuTarget(CpuTarget target);
// Why HasCpuTarget is false, such as "this CPU has no avx512f"; empty when it is true.
std::string WhyNoCpuTarget(CpuTarget target);
// Whether vdpbf16ps outruns fp32 multiply-adds here; false where the CPU has no such instruction.
bool HasFastBf16Dot();
std::string CpuModelName();
// Most threads of one call, of HEED_NUM_THREADS and of the pool.
inline constexpr std::int32_t kMaxThreads = 4096;
// Cores this process may use (affinity mask).
int NumUsableCores();

// 64-byte aligned; null when out of memory. Size 0 gives a valid pointer.
void* AllocateAligned(std::size_t size_bytes);
void FreeAligned(void* block);

// Value of an environment variable; empty when unset.
std::string Environment(const char* name);

}  // namespace heed::core::os

#endif  // HEED_CORE_OS_OS_H_
