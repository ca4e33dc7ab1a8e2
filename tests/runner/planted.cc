// A GoogleTest binary with one test of each outcome. Never registered as a test of the project:
// runner_test.sh runs it to prove that failures and skips are seen.
#include <gtest/gtest.h>

#include <cstdlib>

namespace {

TEST(Planted, Passes) { SUCCEED(); }
TEST(Planted, Fails) { FAIL() << "planted failure"; }
TEST(Planted, Skips) { GTEST_SKIP() << "planted reason"; }
TEST(Planted, Crashes) { std::abort(); }

}  // namespace
