// What the environment makes of GetKernelImage, each time in a process of its own.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/os/files.h"
#include "core/os/os.h"
#include "cuda/fixture.h"
#include "cuda/jit.h"
#include "cuda/kernel_traits.h"
#include "cuda/nvrtc.h"
#include "cuda/packs.h"

namespace heed::cuda {
namespace {

using core::Status;
using Image = std::shared_ptr<const KernelImage>;

constexpr CompileTarget kTarget = {8, 0};

struct ProcessTest : ::testing::Test {
  ProcessTest() {
    chmod(folder.path().c_str(), 0777);
    kernel.entry = "cuda/kernels/helpers/dropout_mask.cu";
    kernel.traits_header = TraitsHeader(KernelTraits());
    kernel.function = "heed_dropout_mask";
  }
  void SetUp() override {
    std::shared_ptr<const Compiler> compiler;
    const Status status = FindNvrtc(0, &compiler);
    if (status.ok()) return;
    ASSERT_NE(core::os::Environment("HEED_REQUIRE_NVRTC"), "1") << status.message();
    GTEST_SKIP() << "NOT TESTED: " << status.message();
  }
  std::string Folder() const { return folder.Path("cache"); }

  test::TemporaryFolder folder;
  KernelSource kernel;
  const test::ScopedVariable no_pack{"HEED_PACK", nullptr};
  const test::ScopedVariable no_log{"HEED_LOG", nullptr};
  const test::ScopedVariable cache{"HEED_CACHE_DIR", Folder().c_str()};
};

TEST_F(ProcessTest, TheSecondProcessCompilesNothing) {
  const auto origin_is = [&](KernelImage::Origin origin) {
    return test::InChildProcess([&] {
      Image image;
      return GetKernelImage(kernel, kTarget, &image).ok() && image->origin == origin &&
             GetKernelImage(kernel, kTarget, &image).ok() && GetJitCounters().num_memory_hits == 1;
    });
  };
  EXPECT_TRUE(origin_is(KernelImage::Origin::kCompiled));
  EXPECT_TRUE(origin_is(KernelImage::Origin::kDiskCache));
}

TEST_F(ProcessTest, ProcessesThatCompileTheSameAtOnceAllSucceed) {
  std::vector<int> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(test::StartChildProcess([&] {
      Image image;
      return GetKernelImage(kernel, kTarget, &image).ok();
    }));
  }
  for (const int child : children) EXPECT_TRUE(test::WaitForChild(child));
  EXPECT_EQ(core::os::ListFolder(Folder()).size(), 1u);
}

TEST_F(ProcessTest, APackReplacesNvrtc) {
  PackOrder order;
  order.path = folder.Path("x.heedpack");
  order.archs = "80";
  order.kernels = "*dropout_mask*";
  const Status built = BuildPack(order);
  ASSERT_TRUE(built.ok()) << built.message();
  EXPECT_TRUE(VerifyPack(order.path).ok());
  const test::ScopedVariable pack("HEED_PACK", order.path.c_str());
  const test::ScopedVariable no_nvrtc("HEED_NVRTC", "/nowhere/libnvrtc.so");
  EXPECT_TRUE(test::InChildProcess([&] {
    Image image;
    return WhyNoKernels(0).empty() && GetKernelImage(kernel, {8, 6}, &image).ok() &&
           image->origin == KernelImage::Origin::kPack &&
           GetKernelImage(kernel, {9, 0}, &image).code() == HEED_UNAVAILABLE;
  }));
}

TEST_F(ProcessTest, ANamedPackThatCannotBeUsedIsAnError) {
  const std::string path = folder.Path("bad.heedpack");
  test::WriteText(path, "not a pack");
  const test::ScopedVariable pack("HEED_PACK", path.c_str());
  EXPECT_TRUE(test::InChildProcess([&] {
    Image image;
    const Status status = GetKernelImage(kernel, kTarget, &image);
    return status.code() == HEED_UNAVAILABLE &&
           status.message().starts_with("HEED_PACK = " + path) && !WhyNoKernels(0).empty();
  }));
}

TEST_F(ProcessTest, WithoutACacheEverythingStillWorks) {
  const test::ScopedVariable no_cache("HEED_CACHE_DIR", nullptr);
  const test::ScopedVariable no_xdg("XDG_CACHE_HOME", nullptr);
  const test::ScopedVariable no_home("HOME", nullptr);
  EXPECT_TRUE(test::InChildProcess([&] {
    Image image;
    return GetKernelImage(kernel, kTarget, &image).ok() &&
           image->origin == KernelImage::Origin::kCompiled;
  }));
}

}  // namespace
}  // namespace heed::cuda
