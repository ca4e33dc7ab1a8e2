// heed_last_error() belongs to its thread and outlives calls that succeed.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "api/forward_call.h"

namespace heed::test {
namespace {

TEST(LastError, IsEmptyOnAFreshThread) {
  std::string text = "unset";
  std::thread([&text] { text = heed_last_error(); }).join();
  EXPECT_EQ(text, "");
}

TEST(LastError, StaysUntilTheNextFailure) {
  ForwardCall call;
  call.exec.num_threads = -3;
  EXPECT_EQ(call.Run(), HEED_INVALID_ARGUMENT);
  const std::string failed = heed_last_error();
  call.exec.num_threads = 1;
  EXPECT_EQ(call.Run(), HEED_OK);
  EXPECT_EQ(heed_last_error(), failed);
}

TEST(LastError, ThreadsDoNotSeeEachOther) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 200;
  std::vector<int> mixed_up(kThreads, 0);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread, &mixed_up] {
      ForwardCall call;
      call.q.shape[1] = -1 - thread;
      const std::string wanted = "q.shape[1] (q_len) = " + std::to_string(-1 - thread) + ":";
      for (int round = 0; round < kRounds; ++round) {
        const heed_status_t status = call.Run();
        const bool is_own = std::string(heed_last_error()).rfind(wanted, 0) == 0;
        if (status != HEED_INVALID_ARGUMENT || !is_own)
          ++mixed_up[static_cast<std::size_t>(thread)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mixed_up, std::vector<int>(kThreads, 0));
}

}  // namespace
}  // namespace heed::test
