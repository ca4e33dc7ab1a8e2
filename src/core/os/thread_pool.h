// A small pool that spins before it parks: a hand-off costs a few cache-line transfers while calls
// follow each other, and nothing while idle.
#ifndef HEED_CORE_OS_THREAD_POOL_H_
#define HEED_CORE_OS_THREAD_POOL_H_

#include <atomic>
#include <cstdint>

namespace heed::core::os {

using WorkerBody = void (*)(void* context, std::int64_t worker);

// Calls body(context, w) for w in [0, num_workers), the calling thread included, and returns when
// all are done. Workers may run one after the other. Calls from several threads at once, from
// inside a worker, and after fork() are all legal: a caller that finds the pool busy runs its
// workers itself.
void ParallelFor(std::int64_t num_workers, WorkerBody body, void* context);

// How long a thread without work spins before it parks, in microseconds: longer than the gap
// between the calls of a model's layers. Parking and waking cost system calls and, where the core
// idled, tens of microseconds more.
inline constexpr std::int32_t kDefaultSpinUs = 200, kMostSpinUs = 1000000;
// HEED_SPIN_US, the default when unset; the default and false when it is not a whole number from 0
// to kMostSpinUs. The pool reads it once.
bool ReadSpinTime(std::int32_t* spin_us);
// HEED_NUM_THREADS, 0 when unset; 0 and false when it is not a whole number from 1 to kMaxThreads.
bool ReadNumThreads(std::int32_t* num_threads);

// Returns when turn == value, which another thread stores with release: spins, then yields. What it
// waits for must be running or done, never queued behind the caller.
void AwaitTurn(std::atomic_ref<std::int32_t> turn, std::int32_t value);

}  // namespace heed::core::os

#endif  // HEED_CORE_OS_THREAD_POOL_H_
