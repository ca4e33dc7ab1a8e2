#include "core/os/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>

#include "core/os/os.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace heed::core::os {
namespace {

// What a thread awaits has usually begun. 4000 pauses are 20 to 200 us.
constexpr int kPausesBeforeYield = 4000;
// Pauses between looks at the clock, 0.5 to 2 us.
constexpr int kPausesPerLook = 32;

void Pause() {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

thread_local bool runs_workers = false;  // this thread is inside a body of ParallelFor

template <class Ready>
void Await(const Ready& ready) {
  for (int i = 0; !ready(); ++i) {
    if (i < kPausesBeforeYield) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

std::chrono::microseconds SpinTime() {
  std::int32_t spin_us = 0;
  ReadSpinTime(&spin_us);
  return std::chrono::microseconds(spin_us);
}

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
    // The last workers of others usually finish within a tile of work.
    Await([this] { return unfinished_.load(std::memory_order_acquire) == 0; });
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

  // One system call wakes all: a thread at a time costs the caller 2 us each, and waking by turns,
  // some wait for the slow start of others.
  void Wake(std::int64_t num_wanted) {
    num_wakes_.fetch_add(1, std::memory_order_seq_cst);
    if (num_wanted >= num_threads_) return num_wakes_.notify_all();
    for (std::int64_t i = 0; i < num_wanted; ++i) num_wakes_.notify_one();
  }

  void SpinForWork() const {
    const auto end = std::chrono::steady_clock::now() + spin_time_;
    do {
      for (int i = 0; i < kPausesPerLook; ++i) {
        if (HasWork(state_.load(std::memory_order_relaxed))) return;
        Pause();
      }
    } while (std::chrono::steady_clock::now() < end);
  }

  // Returns when there is work or was some: waking takes longer than a short job lasts.
  void Park() {
    const std::int32_t seen = num_wakes_.load(std::memory_order_seq_cst);
    num_parked_.fetch_add(1, std::memory_order_seq_cst);
    if (!HasWork(state_.load(std::memory_order_seq_cst))) {
      num_wakes_.wait(seen, std::memory_order_seq_cst);
    }
    num_parked_.fetch_sub(1, std::memory_order_relaxed);
  }

  // A thread that wakes up too late for a job spins again: it is there for the next one.
  void ThreadMain() {
    runs_workers = true;
    while (true) {
      SpinForWork();
      if (!HasWork(state_.load(std::memory_order_relaxed))) Park();
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

  const std::chrono::microseconds spin_time_ = SpinTime();
  std::mutex in_use_;
  std::int64_t num_threads_ = 0;
  WorkerBody body_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<std::uint64_t> state_{0};
  alignas(64) std::atomic<std::int64_t> unfinished_{0};
  alignas(64) std::atomic<int> num_parked_{0};
  std::atomic<std::int32_t> num_wakes_{0};  // parked threads wait for it to change
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

// False for what is not a whole number from least to most; value then stays, as when unset.
bool ReadNumber(const char* variable, std::int32_t least, std::int32_t most, std::int32_t* value) {
  const std::string text = Environment(variable);
  if (text.empty()) return true;
  const char* const end = text.data() + text.size();
  std::int32_t given = 0;
  const std::from_chars_result parsed = std::from_chars(text.data(), end, given);
  const bool is_number = parsed.ec == std::errc{} && parsed.ptr == end;
  if (!is_number || given < least || given > most) return false;
  *value = given;
  return true;
}

}  // namespace

bool ReadSpinTime(std::int32_t* spin_us) {
  *spin_us = kDefaultSpinUs;
  return ReadNumber("HEED_SPIN_US", 0, kMostSpinUs, spin_us);
}

bool ReadNumThreads(std::int32_t* num_threads) {
  *num_threads = 0;
  return ReadNumber("HEED_NUM_THREADS", 1, kMaxThreads, num_threads);
}

void ParallelFor(std::int64_t num_workers, WorkerBody body, void* context) {
  if (num_workers <= 1 || runs_workers) return RunHere(num_workers, body, context);
  Pool* pool = GetPool();
  runs_workers = true;
  const bool ran = pool != nullptr && pool->TryRun(num_workers, body, context);
  if (!ran) RunHere(num_workers, body, context);
  runs_workers = false;
}

void AwaitTurn(std::atomic_ref<std::int32_t> turn, std::int32_t value) {
  Await([&] { return turn.load(std::memory_order_acquire) == value; });
}

}  // namespace heed::core::os
