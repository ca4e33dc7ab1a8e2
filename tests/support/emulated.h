// What an emulated machine cannot show.
#ifndef HEED_TESTS_SUPPORT_EMULATED_H_
#define HEED_TESTS_SUPPORT_EMULATED_H_

#include <cstdlib>

namespace heed::test {

// CTest runs this process under the emulator of a cross build.
inline bool IsEmulated() { return std::getenv("HEED_TEST_EMULATED") != nullptr; }

// The user mode of qemu 7.2 stops on assertions of its own when a child of a process with threads
// starts a thread.
inline constexpr char kNoThreadsAfterFork[] = "the emulator loses threads of a forked child";

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_EMULATED_H_
