#include "core/os/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "support/emulated.h"

namespace heed::test {
namespace {

using core::os::ParallelFor;

// Counts how often each worker ran.
struct Tally {
  explicit Tally(std::int64_t num_workers) : counts(static_cast<std::size_t>(num_workers)) {}

  static void Count(void* context, std::int64_t worker) {
    ++static_cast<Tally*>(context)->counts.at(static_cast<std::size_t>(worker));
  }
  bool EachRan(int times) const {
    for (const std::atomic<int>& count : counts) {
      if (count != times) return false;
    }
    return true;
  }

  std::vector<std::atomic<int>> counts;
};

TEST(ThreadPool, RunsEveryWorkerOnce) {
  for (const std::int64_t num_workers : {0, 1, 2, 3, 64}) {
    Tally tally(num_workers);
    ParallelFor(num_workers, Tally::Count, &tally);
    EXPECT_TRUE(tally.EachRan(1)) << num_workers;
  }
}

TEST(ThreadPool, ManyCallsInARow) {
  Tally tally(4);
  for (int i = 0; i < 20000; ++i) ParallelFor(4, Tally::Count, &tally);
  EXPECT_TRUE(tally.EachRan(20000));
}

TEST(ThreadPool, CallsAfterThreadsHaveParked) {
  Tally tally(3);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ParallelFor(3, Tally::Count, &tally);
  }
  EXPECT_TRUE(tally.EachRan(5));
}

// Threads that sit out small jobs and park meanwhile take part again, and those that join later do.
TEST(ThreadPool, JobsOfAllSizesInTurn) {
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    for (const std::int64_t num_workers : {2, 24, 3, 7, 40, 2, 12}) {
      Tally tally(num_workers);
      if (num_workers % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (int i = 0; i < 20; ++i) ParallelFor(num_workers, Tally::Count, &tally);
      EXPECT_TRUE(tally.EachRan(20)) << num_workers;
    }
  }
}

// Workers that wait for all others finish in time only if every parked thread is woken.
TEST(ThreadPool, EveryParkedThreadWakesUp) {
  static constexpr int kWorkers = 24;
  struct Meeting {
    std::atomic<int> arrived{0};
    std::atomic<int> met{0};
  };
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Meeting meeting;
    ParallelFor(
        kWorkers,
        [](void* context, std::int64_t) {
          auto& here = *static_cast<Meeting*>(context);
          ++here.arrived;
          const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
          while (here.arrived < kWorkers && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          }
          if (here.arrived == kWorkers) ++here.met;
        },
        &meeting);
    ASSERT_EQ(meeting.met, kWorkers);
  }
}

TEST(ThreadPool, IdleThreadsTakeNoCpuTime) {
  Tally tally(8);
  ParallelFor(8, Tally::Count, &tally);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 0.02);
}

// Two workers that wait for each other finish only if they run at the same time.
TEST(ThreadPool, WorkersRunConcurrently) {
  struct Meeting {
    std::atomic<int> arrived{0};
    std::atomic<bool> met{false};
  } meeting;
  ParallelFor(
      2,
      [](void* context, std::int64_t) {
        auto& here = *static_cast<Meeting*>(context);
        ++here.arrived;
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (here.arrived < 2 && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::yield();
        }
        if (here.arrived == 2) here.met = true;
      },
      &meeting);
  EXPECT_TRUE(meeting.met);
}

TEST(ThreadPool, NestedCallsRunInPlace) {
  struct Nest {
    Tally inner{8};
    std::atomic<int> moved{0};
  } nest;
  ParallelFor(
      4,
      [](void* context, std::int64_t) {
        struct Inner {
          Nest* nest;
          std::thread::id outer_thread;
        } inner{static_cast<Nest*>(context), std::this_thread::get_id()};
        ParallelFor(
            8,
            [](void* inner_context, std::int64_t worker) {
              const auto& here = *static_cast<Inner*>(inner_context);
              Tally::Count(&here.nest->inner, worker);
              if (std::this_thread::get_id() != here.outer_thread) ++here.nest->moved;
            },
            &inner);
      },
      &nest);
  EXPECT_TRUE(nest.inner.EachRan(4));
  EXPECT_EQ(nest.moved, 0);
}

TEST(ThreadPool, ConcurrentCallers) {
  constexpr int kCallers = 4, kCalls = 2000;
  std::vector<std::thread> callers;
  std::atomic<int> good{0};
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&] {
      Tally tally(3);
      for (int call = 0; call < kCalls; ++call) ParallelFor(3, Tally::Count, &tally);
      if (tally.EachRan(kCalls)) ++good;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(good, kCallers);
}

TEST(ThreadPool, WorksInAForkedChild) {
  if (IsEmulated()) GTEST_SKIP() << kNoThreadsAfterFork;
  Tally before(3);
  ParallelFor(3, Tally::Count, &before);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that hangs is a failure, not a hung test
    Tally tally(3);
    for (int i = 0; i < 100; ++i) ParallelFor(3, Tally::Count, &tally);
    _exit(tally.EachRan(100) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  Tally after(3);
  ParallelFor(3, Tally::Count, &after);
  EXPECT_TRUE(after.EachRan(1));
}

}  // namespace
}  // namespace heed::test
