#include "core/os/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "core/os/os.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace heed::core::os {
namespace {

// A hand-off while spinning costs one cache-line transfer; parking and waking costs a system call.
// 4000 pauses are 20 to 150 us, longer than the gap between the calls of a model's layers.
constexpr int kSpinPauses = 4000;

void Pause() {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

thread_local bool runs_workers = false;  // this thread is inside a body of ParallelFor

// Workers of a job are taken one by one from `state`, by pool threads and by the caller alike, so a
// job never waits for a thread that has not woken up: whoever is there takes what is left.
//
// state = job number * 2^32 + workers not taken yet. Taking is a compare-exchange, so it succeeds
// only for the current job, and the job's fields cannot change before every taken worker has
// finished.
class Pool {
 public:
  // False when another caller is using the pool.
  bool TryRun(std::int64_t num_workers, WorkerBody body, void* context) {
    if (!in_use_.try_lock()) return false;
    const std::lock_guard<std::mutex> use(in_use_, std::adopt_lock);
    AddThreads(num_workers - 1);
    body_ = body;
    context_ = context;
    unfinished_.store(num_workers, std::memory_order_relaxed);
    const std::uint64_t job = (state_.load(std::memory_order_relaxed) >> 32) + 1;
    // Sequentially consistent with num_parked_: either this sees the sleeper or it sees the job.
    state_.store(job << 32 | static_cast<std::uint64_t>(num_workers), std::memory_order_seq_cst);
    if (num_parked_.load(std::memory_order_seq_cst) > 0) Wake(num_workers - 1);
    TakeWorkers();
    while (unfinished_.load(std::memory_order_acquire) != 0) WaitForOthers();
    return true;
  }

 private:
  static bool HasWork(std::uint64_t state) { return static_cast<std::uint32_t>(state) != 0; }

  void TakeWorkers() {
    std::uint64_t state = state_.load(std::memory_order_acquire);
    while (HasWork(state)) {
      if (!state_.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel)) continue;
      body_(context_, static_cast<std::int64_t>(static_cast<std::uint32_t>(state)) - 1);
      unfinished_.fetch_sub(1, std::memory_order_acq_rel);
      state = state_.load(std::memory_order_acquire);
    }
  }

  // The last workers of others usually finish within a tile of work.
  void WaitForOthers() {
    for (int i = 0; i < kSpinPauses; ++i) {
      if (unfinished_.load(std::memory_order_acquire) == 0) return;
      Pause();
    }
    std::this_thread::yield();
  }

  void Wake(std::int64_t num_wanted) {
    const std::lock_guard<std::mutex> lock(park_mutex_);
    if (num_wanted >= num_threads_) return parked_.notify_all();
    for (std::int64_t i = 0; i < num_wanted; ++i) parked_.notify_one();
  }

  void ParkUntilWork() {
    std::unique_lock<std::mutex> lock(park_mutex_);
    num_parked_.fetch_add(1, std::memory_order_seq_cst);
    parked_.wait(lock, [&] { return HasWork(state_.load(std::memory_order_seq_cst)); });
    num_parked_.fetch_sub(1, std::memory_order_relaxed);
  }

  void ThreadMain() {
    runs_workers = true;
    while (true) {
      for (int i = 0; i < kSpinPauses && !HasWork(state_.load(std::memory_order_relaxed)); ++i) {
        Pause();
      }
      if (!HasWork(state_.load(std::memory_order_relaxed))) ParkUntilWork();
      TakeWorkers();
    }
  }

  // Threads are never joined: they end with the process. When the system refuses one, the job runs
  // with those that exist.
  void AddThreads(std::int64_t wanted) {
    if (num_threads_ >= wanted || num_threads_ >= kMaxThreads) return;
    // Signals belong to the threads of the application.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (; num_threads_ < wanted && num_threads_ < kMaxThreads; ++num_threads_) {
        std::thread([this] { ThreadMain(); }).detach();
      }
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  std::mutex in_use_;
  std::int64_t num_threads_ = 0;
  WorkerBody body_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<std::uint64_t> state_{0};
  alignas(64) std::atomic<std::int64_t> unfinished_{0};
  alignas(64) std::atomic<int> num_parked_{0};
  std::mutex park_mutex_;
  std::condition_variable parked_;
};

std::atomic<Pool*> the_pool{nullptr};

// A child process has none of its parent's threads: it starts with a new pool. The old one stays
// as it is, locked perhaps, and is never touched again.
void ForgetPool() { the_pool.store(nullptr, std::memory_order_relaxed); }

// Null when out of memory. Never destroyed: its threads outlive every static object.
Pool* GetPool() {
  Pool* pool = the_pool.load(std::memory_order_acquire);
  if (pool != nullptr) return pool;
  static const int registered = pthread_atfork(nullptr, nullptr, ForgetPool);
  if (registered != 0) return nullptr;
  auto fresh = std::unique_ptr<Pool>(new (std::nothrow) Pool);
  if (the_pool.compare_exchange_strong(pool, fresh.get(), std::memory_order_acq_rel)) {
    return fresh.release();
  }
  return pool;
}

void RunHere(std::int64_t num_workers, WorkerBody body, void* context) {
  for (std::int64_t worker = 0; worker < num_workers; ++worker) body(context, worker);
}

}  // namespace

void ParallelFor(std::int64_t num_workers, WorkerBody body, void* context) {
  if (num_workers <= 1 || runs_workers) return RunHere(num_workers, body, context);
  Pool* pool = GetPool();
  runs_workers = true;
  const bool ran = pool != nullptr && pool->TryRun(num_workers, body, context);
  if (!ran) RunHere(num_workers, body, context);
  runs_workers = false;
}

void AwaitTurn(std::atomic_ref<std::int32_t> turn, std::int32_t value) {
  for (int i = 0; turn.load(std::memory_order_acquire) != value; ++i) {
    if (i < kSpinPauses) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace heed::core::os
