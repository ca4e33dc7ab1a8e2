// From a pack to the launch of a decode call without a compiler. One process, one test: the library
// looks for packs when it needs its first kernel.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/os/os.h"
#include "cuda/fake_driver/device_tensors.h"
#include "cuda/fake_driver/fake_driver.h"
#include "cuda/nvrtc.h"
#include "cuda/pack_builder.h"
#include "cuda/shipped_kernels.h"
#include "heed/heed.h"

namespace heed::test {
namespace {

// Those of one call among all that the feature stands for.
std::vector<cuda::KernelSource> KernelsOfTheCall(const cuda::CompileTarget& target) {
  std::vector<cuda::FeatureSet> sets;
  EXPECT_TRUE(cuda::ParseFeatures("int8+paged", &sets).ok());
  std::vector<cuda::KernelSource> kept;
  for (cuda::KernelSource& kernel : cuda::ShippedKernels(target, sets)) {
    const bool is_attend = kernel.label.find("decode.f16.d128.") != std::string::npos &&
                           kernel.label.ends_with(".columns.int8+paged");
    if (is_attend || kernel.label == "cuda.decode_append.f16.int8+paged") kept.push_back(kernel);
  }
  return kept;
}

TEST(DecodePack, ServesACallWithoutNvrtc) {
  const std::string path = testing::TempDir() + "heed_decode_pack_test.heedpack";
  cuda::PackTools tools;
  tools.sources = cuda::KernelSources();
  tools.find_compiler = cuda::FindNvrtc;
  tools.list_kernels = KernelsOfTheCall;
  cuda::PackOrder order;
  order.path = path;
  order.archs = "90a";
  const core::Status built = cuda::BuildPackWith(tools, order);
  if (built.code() == HEED_UNAVAILABLE) {
    ASSERT_NE(core::os::Environment("HEED_REQUIRE_NVRTC"), "1") << built.message();
    GTEST_SKIP() << "NOT TESTED: " << built.message();
  }
  ASSERT_TRUE(built.ok()) << built.message();
  ASSERT_EQ(heed_pack_verify(path.c_str()), HEED_OK) << heed_last_error();

  setenv("HEED_PACK", path.c_str(), 1);
  setenv("HEED_NVRTC", "/nowhere/libnvrtc.so", 1);
  FakeDecode call(128);
  const long long launches_before = NumFakeLaunches();
  EXPECT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
  EXPECT_EQ(NumFakeLaunches(), launches_before + 2) << "append, attend";
  // What is not in the pack cannot be had.
  call.score.softcap = 20.0;
  EXPECT_EQ(heed_decode(&call.args), HEED_UNAVAILABLE);
  EXPECT_NE(std::string(heed_last_error()).find("NVRTC"), std::string::npos) << heed_last_error();
}

}  // namespace
}  // namespace heed::test
