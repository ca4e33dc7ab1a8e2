// The order memory, pack, disk, compiler; one compilation per kernel; what a failure leaves behind.
#include "cuda/kernel_store.h"

#include <gtest/gtest.h>

#include <barrier>
#include <filesystem>
#include <thread>

#include "cuda/fixture.h"

namespace heed::cuda {
namespace {

using core::Status;
using test::CountingCompiler;
using test::kSm80;
using test::kTwoSources;
using test::SourceNamed;
using Image = std::shared_ptr<const KernelImage>;

struct StoreTest : ::testing::Test {
  KernelStoreConfig Config(const std::string& cache_folder) const {
    KernelStoreConfig config;
    config.sources = kTwoSources;
    config.find_compiler = test::Always(compiler);
    config.cache_folder = cache_folder;
    return config;
  }
  std::string Folder() const { return folder.Path("cache"); }

  test::TemporaryFolder folder;
  std::shared_ptr<CountingCompiler> compiler = std::make_shared<CountingCompiler>();
};

TEST_F(StoreTest, CompilesOnceThenAnswersFromMemory) {
  KernelStore store(Config(Folder()));
  Image first, second;
  ASSERT_TRUE(store.Get(SourceNamed("f"), kSm80, &first).ok());
  EXPECT_EQ(first->origin, KernelImage::Origin::kCompiled);
  EXPECT_EQ(test::TextOf(*first), "cubin 80 f traits first second");
  EXPECT_EQ(first->arch, "80");
  EXPECT_EQ(first->log, "log of f");
  // What is loaded is not read from disk again.
  std::filesystem::remove_all(Folder());
  ASSERT_TRUE(store.Get(SourceNamed("f"), kSm80, &second).ok());
  EXPECT_EQ(first, second);
  EXPECT_EQ(compiler->num_compiled, 1);
  EXPECT_EQ(store.counters().num_compiled, 1);
  EXPECT_EQ(store.counters().num_memory_hits, 1);
}

TEST_F(StoreTest, AnotherProcessTakesItFromDisk) {
  Image image;
  KernelStore first(Config(Folder()));
  ASSERT_TRUE(first.Get(SourceNamed("f"), kSm80, &image).ok());
  KernelStore second(Config(Folder()));
  ASSERT_TRUE(second.Get(SourceNamed("f"), kSm80, &image).ok());
  EXPECT_EQ(image->origin, KernelImage::Origin::kDiskCache);
  EXPECT_EQ(test::TextOf(*image), "cubin 80 f traits first second");
  EXPECT_EQ(image->arch, "80");
  EXPECT_EQ(image->log, "log of f");
  EXPECT_EQ(compiler->num_compiled, 1);
  EXPECT_EQ(second.counters().num_disk_hits, 1);
}

TEST_F(StoreTest, EverythingThatDecidesTheImageDecidesTheEntry) {
  const auto compile_anew = [&](const KernelStoreConfig& config, const KernelSource& source,
                                const CompileTarget& target) {
    const int before = compiler->num_compiled;
    Image image;
    KernelStore store(config);
    EXPECT_TRUE(store.Get(source, target, &image).ok());
    return compiler->num_compiled != before;
  };
  const KernelStoreConfig config = Config(Folder());
  const KernelSource source = SourceNamed("f");
  EXPECT_TRUE(compile_anew(config, source, kSm80));
  EXPECT_FALSE(compile_anew(config, source, kSm80));

  KernelSource relabelled = source;
  relabelled.label = "another";
  EXPECT_FALSE(compile_anew(config, relabelled, kSm80)) << "the label is for people";

  KernelSource changed = source;
  changed.traits_header = "other traits";
  EXPECT_TRUE(compile_anew(config, changed, kSm80));
  EXPECT_TRUE(compile_anew(config, SourceNamed("g"), kSm80));
  EXPECT_TRUE(compile_anew(config, source, {8, 6}));
  EXPECT_TRUE(compile_anew(config, source, {9, 0, false}));
  EXPECT_TRUE(compile_anew(config, source, {9, 0, true}));
  {
    const test::ScopedVariable line_info("HEED_CUDA_LINEINFO", "1");
    EXPECT_TRUE(compile_anew(config, source, kSm80));
  }
  constexpr EmbeddedSource kEdited[] = {{"cuda/kernels/a.cu", "first"}, {"device/b.h", "edited"}};
  KernelStoreConfig edited = config;
  edited.sources = kEdited;
  EXPECT_TRUE(compile_anew(edited, source, kSm80)) << "an edited header makes entries stale";
  constexpr EmbeddedSource kMoved[] = {{"cuda/kernels/a.cu", "firstdevice/b.h"}, {"", "second"}};
  KernelStoreConfig moved = config;
  moved.sources = kMoved;
  EXPECT_TRUE(compile_anew(moved, source, kSm80)) << "fields may not run together";
  compiler->version = "13.1";
  EXPECT_TRUE(compile_anew(config, source, kSm80));
  EXPECT_FALSE(compile_anew(config, source, kSm80));
}

TEST_F(StoreTest, ManyThreadsOnTheFirstCallCompileOnce) {
  constexpr int kNumThreads = 64;
  compiler->duration = std::chrono::milliseconds(50);
  KernelStore store(Config(Folder()));
  std::barrier start(kNumThreads);
  std::vector<Image> images(kNumThreads);
  std::vector<std::thread> threads;
  for (Image& image : images) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      EXPECT_TRUE(store.Get(SourceNamed("f"), kSm80, &image).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiler->num_compiled, 1);
  for (const Image& image : images) EXPECT_EQ(image, images[0]);
  EXPECT_NE(images[0], nullptr);
}

TEST_F(StoreTest, DifferentKernelsCompileAtTheSameTime) {
  compiler->duration = std::chrono::milliseconds(200);
  KernelStore store(Config(Folder()));
  std::barrier start(2);
  std::vector<std::thread> threads;
  for (const char* function : {"f", "g"}) {
    threads.emplace_back([&, function] {
      Image image;
      start.arrive_and_wait();
      EXPECT_TRUE(store.Get(SourceNamed(function), kSm80, &image).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiler->max_running, 2);
}

TEST_F(StoreTest, AFailureReachesEveryoneWhoWaitsAndIsForgotten) {
  constexpr int kNumThreads = 8;
  compiler->duration = std::chrono::milliseconds(100);
  compiler->num_failures_left = 1;
  KernelStore store(Config(Folder()));
  std::barrier start(kNumThreads);
  std::atomic<int> num_failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&] {
      Image image;
      start.arrive_and_wait();
      const Status status = store.Get(SourceNamed("f"), kSm80, &image);
      if (status.ok()) return;
      EXPECT_EQ(status.code(), HEED_INTERNAL);
      EXPECT_EQ(status.message(), "planted failure");
      ++num_failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(num_failed, 1);
  EXPECT_LE(compiler->num_compiled, 2) << "those who waited did not each try again";
  Image image;
  EXPECT_TRUE(store.Get(SourceNamed("f"), kSm80, &image).ok());
}

TEST_F(StoreTest, WithoutACompilerTheTextSaysWhatToDo) {
  KernelStoreConfig config = Config(Folder());
  config.find_compiler = test::Never();
  KernelStore store(config);
  Image image;
  const Status status = store.Get(SourceNamed("f"), {9, 0, true}, &image);
  EXPECT_EQ(status.code(), HEED_UNAVAILABLE);
  for (const char* part : {"f_label", "sm_90a", "no NVRTC in this test", "HEED_PACK"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status.message();
  }
  EXPECT_EQ(store.WhyNothing(0), "no NVRTC in this test");
}

TEST_F(StoreTest, AGpuNewerThanTheCompilerGetsAnOlderCubinElsePtx) {
  KernelStore store(Config(Folder()));
  Image image;
  ASSERT_TRUE(store.Get(SourceNamed("f"), {12, 1}, &image).ok());
  EXPECT_EQ(image->format, KernelImage::Format::kCubin);
  EXPECT_EQ(image->arch, "120");
  ASSERT_TRUE(store.Get(SourceNamed("f"), {13, 0}, &image).ok());
  EXPECT_EQ(image->format, KernelImage::Format::kPtx);
  EXPECT_EQ(image->arch, "120");
  EXPECT_EQ(test::TextOf(*image), "ptx 120 f traits first second");
  const Status too_specific = store.Get(SourceNamed("f"), {13, 0, true}, &image);
  EXPECT_EQ(too_specific.code(), HEED_UNAVAILABLE);
  EXPECT_NE(too_specific.message().find("130a"), std::string::npos);
  EXPECT_EQ(store.Get(SourceNamed("f"), {7, 0}, &image).code(), HEED_UNAVAILABLE);
}

TEST_F(StoreTest, PtxIsCompiledWhereItIsAskedFor) {
  KernelStore store(Config(Folder()));
  Image ptx, cubin;
  CompileTarget target = {7, 5};
  ASSERT_TRUE(store.Get(SourceNamed("f"), target, &cubin).ok());
  target.as_ptx = true;
  ASSERT_TRUE(store.Get(SourceNamed("f"), target, &ptx).ok());
  EXPECT_EQ(test::TextOf(*cubin), "cubin 75 f traits first second");
  EXPECT_EQ(test::TextOf(*ptx), "ptx 75 f traits first second");
  EXPECT_EQ(ptx->format, KernelImage::Format::kPtx);
  target.minor = 4;
  EXPECT_EQ(store.Get(SourceNamed("f"), target, &ptx).code(), HEED_UNAVAILABLE);
}

TEST_F(StoreTest, EmbeddedGpusShareNoCubins) {
  for (const ArchChoice& choice : ImageChoices({8, 9})) EXPECT_NE(choice.arch, "87");
  EXPECT_EQ(ImageChoices({8, 7}).size(), 1u) << "an embedded GPU";
  EXPECT_EQ(ImageChoices({9, 0, true}).size(), 1u);
  const std::vector<ArchChoice> ada = ImageChoices({8, 9});
  ASSERT_GE(ada.size(), 3u);
  EXPECT_EQ(ada.front().arch, "89");
  EXPECT_EQ(ada[1].arch, "89a");
  EXPECT_EQ(ada.back().arch, "80");
}

TEST(ArchNames, RoundTrip) {
  for (const char* name : {"75", "80", "90a", "100", "120", "121a"}) {
    CompileTarget target;
    ASSERT_TRUE(ParseArchName(name, &target)) << name;
    EXPECT_EQ(ArchName(target), name);
  }
  for (const char* bad : {"", "a", "9", "90b", "sm_90", "9 0", "-80", "080", "1200", "90aa"}) {
    CompileTarget target;
    EXPECT_FALSE(ParseArchName(bad, &target)) << bad;
  }
}

}  // namespace
}  // namespace heed::cuda
