// Which part of the generated cases this process runs, when several share them.
#ifndef HEED_TESTS_CONFORMANCE_SHARD_H_
#define HEED_TESTS_CONFORMANCE_SHARD_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace heed::test {

struct Shard {
  std::uint64_t index = 0;  // HEED_TEST_SHARD=INDEX/COUNT: every COUNT-th case, from INDEX on
  std::uint64_t count = 1;
  unsigned num_threads = 1;  // HEED_TEST_THREADS, by default one per core, at most 16

  bool is_whole() const { return count == 1; }

  static Shard Read() {
    Shard shard;
    unsigned long long index = 0, count = 1;
    const char* text = std::getenv("HEED_TEST_SHARD");
    if (text != nullptr && *text != '\0') {
      if (std::sscanf(text, "%llu/%llu", &index, &count) != 2 || index >= count) {
        std::fprintf(stderr, "HEED_TEST_SHARD = %s: must be INDEX/COUNT with INDEX < COUNT\n",
                     text);
        std::exit(2);
      }
      shard.index = index;
      shard.count = count;
    }
    const char* threads = std::getenv("HEED_TEST_THREADS");
    const long wanted = threads != nullptr ? std::atol(threads) : 0;
    shard.num_threads = wanted > 0 ? static_cast<unsigned>(wanted)
                                   : std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
    return shard;
  }
};

}  // namespace heed::test

#endif  // HEED_TESTS_CONFORMANCE_SHARD_H_
