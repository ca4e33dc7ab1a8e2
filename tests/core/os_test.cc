#include "core/os/os.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace heed::core::os {
namespace {

TEST(CpuTargets, TheCompilersOwnCheckAgrees) {
  EXPECT_TRUE(HasCpuTarget(CpuTarget::kGeneric));
#if defined(__x86_64__)
  __builtin_cpu_init();
  EXPECT_EQ(HasCpuTarget(CpuTarget::kAvx2),
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(HasCpuTarget(CpuTarget::kAvx512),
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
#endif
}

TEST(CpuTargets, AReasonIsGivenExactlyWhenATargetIsMissing) {
  for (int index = 0; index < kNumCpuTargets; ++index) {
    const auto target = static_cast<CpuTarget>(index);
    EXPECT_EQ(WhyNoCpuTarget(target).empty(), HasCpuTarget(target)) << CpuTargetName(target);
  }
}

TEST(CpuTargets, ModelHasAName) { EXPECT_FALSE(CpuModelName().empty()); }

TEST(Cores, AreCounted) { EXPECT_GE(NumUsableCores(), 1); }

TEST(AllocateAligned, GivesUsableAlignedBlocks) {
  for (const std::size_t size_bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{4097}}) {
    void* block = AllocateAligned(size_bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
    std::memset(block, 1, size_bytes);
    FreeAligned(block);
  }
}

TEST(AllocateAligned, TooMuchIsNull) {
  EXPECT_EQ(AllocateAligned(std::numeric_limits<std::size_t>::max()), nullptr);
  EXPECT_EQ(AllocateAligned(std::numeric_limits<std::size_t>::max() / 2), nullptr);
}

TEST(Environment, UnsetIsEmpty) {
  unsetenv("HEED_TEST_VARIABLE");
  EXPECT_EQ(Environment("HEED_TEST_VARIABLE"), "");
  setenv("HEED_TEST_VARIABLE", "value", 1);
  EXPECT_EQ(Environment("HEED_TEST_VARIABLE"), "value");
  unsetenv("HEED_TEST_VARIABLE");
}

}  // namespace
}  // namespace heed::core::os
