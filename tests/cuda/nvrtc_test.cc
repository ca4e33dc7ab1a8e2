// The real compiler: finding it, compiling what is embedded, and its errors. Skips, loudly, on a
// machine without NVRTC; HEED_REQUIRE_NVRTC=1 turns the skip into a failure.
#include "cuda/nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/os/os.h"
#include "cuda/fixture.h"
#include "cuda/nvrtc_search.h"
#include "cuda/resources.h"

namespace heed::cuda {
namespace {

using core::Status;

constexpr const char* kProbe = R"(
#include "heed_traits.h"
#include "device/probe.h"
extern "C" __global__ void heed_probe(float* values, int n) {
  __shared__ float tile[heed::cuda::Traits::kTile];
  tile[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = Twice(tile[n]);
}
)";
constexpr EmbeddedSource kSources[] = {
    {"cuda/kernels/probe.cu", kProbe},
    {"device/probe.h", "__device__ inline float Twice(float x) { return 2.0f * x; }\n"}};
const KernelSource kSource = {
    "cuda/kernels/probe.cu",
    "namespace heed::cuda { struct Traits { static constexpr int kTile = 256; }; }\n",
    "heed_probe"};

struct NvrtcTest : ::testing::Test {
  void SetUp() override {
    const Status status = FindNvrtc(0, &compiler);
    if (status.ok()) return;
    ASSERT_NE(core::os::Environment("HEED_REQUIRE_NVRTC"), "1") << status.message();
    GTEST_SKIP() << "NOT TESTED: " << status.message();
  }
  std::shared_ptr<const Compiler> compiler;
};

TEST_F(NvrtcTest, CompilesForEveryArchItNames) {
  std::vector<int> archs = compiler->Archs();
  ASSERT_FALSE(archs.empty());
  EXPECT_TRUE(std::is_sorted(archs.begin(), archs.end()));
  for (const int number : {archs.front(), 90, archs.back()}) {
    if (std::find(archs.begin(), archs.end(), number) == archs.end()) continue;
    KernelImage image;
    const Status status = compiler->Compile(kSources, kSource, {std::to_string(number)}, &image);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(std::string(image.cubin.data() + 1, 3), "ELF");
    KernelResources resources;
    ASSERT_TRUE(ParseResources(image.log, "heed_probe", &resources)) << image.log;
    EXPECT_GT(resources.registers, 0);
    EXPECT_EQ(resources.shared_bytes % 4, 0);
    EXPECT_GE(resources.shared_bytes, 1024);
    EXPECT_EQ(resources.spill_bytes, 0);
  }
}

TEST_F(NvrtcTest, GivesTheSameBytesTwice) {
  KernelImage images[2];
  for (KernelImage& image : images) {
    ASSERT_TRUE(compiler->Compile(kSources, kSource, {"80"}, &image).ok());
  }
  EXPECT_EQ(images[0].cubin, images[1].cubin);
  EXPECT_EQ(images[0].log, images[1].log);
}

TEST_F(NvrtcTest, GivesPtxThatTheDriverCanTake) {
  KernelImage image;
  const ArchChoice choice = {"80", KernelImage::Format::kPtx};
  ASSERT_TRUE(compiler->Compile(kSources, kSource, choice, &image).ok());
  ASSERT_FALSE(image.cubin.empty());
  EXPECT_EQ(image.cubin.back(), '\0');
  const std::string text = image.cubin.data();
  EXPECT_NE(text.find(".target sm_80"), std::string::npos);
  EXPECT_NE(text.find(".entry heed_probe"), std::string::npos);
}

TEST_F(NvrtcTest, SaysWhatDoesNotCompile) {
  constexpr EmbeddedSource kBroken[] = {{"cuda/kernels/probe.cu", "int x = undeclared_name;\n"}};
  KernelImage image;
  const Status status = compiler->Compile(kBroken, kSource, {"80"}, &image);
  EXPECT_EQ(status.code(), HEED_INTERNAL);
  for (const char* part : {"cuda/kernels/probe.cu", "undeclared_name", "80"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status.message();
  }
  KernelSource absent = kSource;
  absent.entry = "cuda/kernels/absent.cu";
  EXPECT_EQ(compiler->Compile(kSources, absent, {"80"}, &image).code(), HEED_INTERNAL);
}

TEST(EmbeddedSources, AreTheFilesOfTheTree) {
  ASSERT_FALSE(KernelSources().empty());
  for (const EmbeddedSource& source : KernelSources()) {
    const std::string file = std::string(HEED_SOURCE_DIR "/") + source.name;
    ASSERT_TRUE(std::filesystem::is_regular_file(file)) << file;
    EXPECT_TRUE(test::ReadText(file) == source.text) << file << " differs: build again";
  }
}

TEST(NvrtcSearch, ANamedLibraryIsTheOnlyCandidate) {
  const test::ScopedVariable named("HEED_NVRTC", "/nowhere/libnvrtc.so.13");
  std::string searched;
  const std::vector<NvrtcCandidate> candidates = NvrtcCandidates(12, &searched);
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].file, "/nowhere/libnvrtc.so.13");
  std::shared_ptr<const Compiler> compiler;
  const Status status = FindNvrtc(0, &compiler);
  EXPECT_EQ(status.code(), HEED_UNAVAILABLE);
  EXPECT_EQ(compiler, nullptr);
  for (const char* part : {"HEED_NVRTC = /nowhere/libnvrtc.so.13", "pip install", "heed pack"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status.message();
  }
}

TEST(NvrtcSearch, ALibraryWithoutItsFunctionsIsRefused) {
  const test::ScopedVariable named("HEED_NVRTC", "libc.so.6");
  std::shared_ptr<const Compiler> compiler;
  const Status status = FindNvrtc(0, &compiler);
  EXPECT_EQ(status.code(), HEED_UNAVAILABLE);
  EXPECT_NE(status.message().find("lacks functions"), std::string::npos) << status.message();
}

TEST_F(NvrtcTest, ANewerMajorVersionThanTheDriversIsRefused) {
  std::shared_ptr<const Compiler> old;
  const Status status = FindNvrtc(11080, &old);
  EXPECT_EQ(status.code(), HEED_UNAVAILABLE);
  EXPECT_EQ(old, nullptr);
  EXPECT_NE(status.message().find("supports CUDA 11.8"), std::string::npos) << status.message();
}

TEST(NvrtcSearch, FindsPythonPackages) {
  const test::TemporaryFolder folder;
  const std::string packages = folder.Path("lib/python3.11/site-packages");
  const std::string files[] = {packages + "/nvidia/cu13/lib/libnvrtc.so.13",
                               packages + "/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
                               packages + "/torch/lib/libnvrtc-672ee683.so.12"};
  for (const std::string& file : files) {
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    test::WriteText(file, "");
  }
  const std::string too_old = packages + "/torch/lib/libnvrtc.so.11.2";
  test::WriteText(too_old, "");
  const std::string builtins = packages + "/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.4";
  test::WriteText(builtins, "");
  const test::ScopedVariable unnamed("HEED_NVRTC", nullptr);
  const auto position = [](const std::vector<NvrtcCandidate>& candidates, const std::string& file) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].file == file) return static_cast<int>(i);
    }
    return -1;
  };
  std::string searched;
  {
    const test::ScopedVariable environment("VIRTUAL_ENV", folder.path().c_str());
    const auto all = NvrtcCandidates(13, &searched);
    const int first = position(all, files[0]), second = position(all, files[1]);
    EXPECT_GE(first, 0);
    EXPECT_LT(first, second);
    EXPECT_LT(second, position(all, files[2]));
    EXPECT_LT(position(all, files[2]), position(all, "libnvrtc.so.13")) << "before the system's";
    EXPECT_EQ(position(all, builtins), -1);
    EXPECT_EQ(position(all, too_old), -1);
    EXPECT_NE(searched.find(packages), std::string::npos);
    const auto up_to_12 = NvrtcCandidates(12, &searched);
    EXPECT_EQ(position(up_to_12, files[0]), -1);
    EXPECT_EQ(position(up_to_12, "libnvrtc.so.13"), -1);
    EXPECT_GE(position(up_to_12, files[1]), 0);
  }
  {
    const test::ScopedVariable environment("PYTHONPATH", ("/nowhere::" + packages).c_str());
    EXPECT_GE(position(NvrtcCandidates(13, &searched), files[0]), 0);
  }
  EXPECT_EQ(position(NvrtcCandidates(13, &searched), files[0]), -1);
}

TEST(NvrtcSearch, KnowsTheNamesOfNvrtc) {
  EXPECT_EQ(NvrtcMajorOfFile("libnvrtc.so.13"), 13);
  EXPECT_EQ(NvrtcMajorOfFile("libnvrtc.so.11.2"), 11);
  EXPECT_EQ(NvrtcMajorOfFile("libnvrtc-672ee683.so.12"), 12);
  for (const char* other : {"libnvrtc.so", "libnvrtc-builtins.so.12.4", "libnvrtc.alt.so.13",
                            "libnvrtcx.so.12", "libnvrtc.so.x", "nvrtc.so.12"}) {
    EXPECT_EQ(NvrtcMajorOfFile(other), 0) << other;
  }
}

TEST(Resources, AreReadFromPtxasReports) {
  constexpr const char* kLog =
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized due to...\n"
      "ptxas info    : 4 bytes gmem\n"
      "ptxas info    : Compiling entry function 'heed_other' for 'sm_90a'\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers\n"
      "ptxas info    : Compiling entry function 'heed_forward' for 'sm_90a'\n"
      "ptxas info    : Function properties for heed_forward\n"
      "ptxas         .     48 bytes stack frame, 24 bytes spill stores, 36 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 3 barriers, 48 bytes cumulative stack size, "
      "1024 bytes smem, 372 bytes cmem[0]\n";
  KernelResources resources;
  ASSERT_TRUE(ParseResources(kLog, "heed_forward", &resources));
  EXPECT_EQ(resources.registers, 168);
  EXPECT_EQ(resources.spill_bytes, 60);
  EXPECT_EQ(resources.local_bytes, 48);
  EXPECT_EQ(resources.shared_bytes, 1024);
  EXPECT_TRUE(resources.is_serialized);
  ASSERT_TRUE(ParseResources(kLog, "heed_other", &resources));
  EXPECT_EQ(resources.registers, 40);
  EXPECT_EQ(resources.spill_bytes, 0);
  EXPECT_EQ(resources.shared_bytes, 0);
  EXPECT_FALSE(ParseResources(kLog, "heed", &resources));
  EXPECT_FALSE(ParseResources("", "heed_forward", &resources));
}

TEST(Logs, LoseWhatDiffersBetweenRuns) {
  EXPECT_EQ(WithoutTimes("a\nptxas info : Compile time = 18.198 ms\nb"), "a\nb\n");
  EXPECT_EQ(WithoutTimes(""), "");
}

}  // namespace
}  // namespace heed::cuda
