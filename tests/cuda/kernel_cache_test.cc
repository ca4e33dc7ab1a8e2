// Known faults of kernel caches: each has happened to somebody's.
#include "cuda/kernel_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/os/files.h"
#include "cuda/fixture.h"
#include "cuda/image_record.h"

namespace heed::cuda {
namespace {

using test::CountingCompiler;
using test::kSm80;
using test::SourceNamed;
using Image = std::shared_ptr<const KernelImage>;

ImageKey KeyNamed(const std::string& name) { return core::Sha256Of(name); }

KernelImage ImageOf(const std::string& text) {
  KernelImage image;
  image.cubin.assign(text.begin(), text.end());
  image.arch = "80";
  image.log = "log";
  return image;
}

// One kernel compiled into the cache, and what a later process makes of its entry.
struct CacheTest : ::testing::Test {
  CacheTest() {
    // Children run as an ordinary user, who must be able to reach the folder.
    chmod(folder.path().c_str(), 0777);
    compiler->archs = {80};
  }

  KernelStoreConfig Config() const {
    KernelStoreConfig config;
    config.sources = test::kTwoSources;
    config.find_compiler = test::Always(compiler);
    config.cache_folder = Folder();
    return config;
  }
  std::string Folder() const { return folder.Path("cache"); }
  // The image, from a store that remembers nothing.
  Image Get() const {
    Image image;
    KernelStore store(Config());
    EXPECT_TRUE(store.Get(SourceNamed("f"), kSm80, &image).ok());
    return image;
  }
  std::string Entry() const {
    const std::vector<std::string> names = core::os::ListFolder(Folder());
    EXPECT_EQ(names.size(), 1u);
    return names.empty() ? "" : Folder() + "/" + names[0];
  }
  // The entry is not used, not trusted, and whole again afterwards.
  void ExpectRecompiled(const std::string& fault) {
    SCOPED_TRACE(fault);
    EXPECT_EQ(Get()->origin, KernelImage::Origin::kCompiled);
    const Image healed = Get();
    EXPECT_EQ(healed->origin, KernelImage::Origin::kDiskCache);
    EXPECT_EQ(test::TextOf(*healed), "cubin 80 f traits first second");
  }

  test::TemporaryFolder folder;
  std::shared_ptr<CountingCompiler> compiler = std::make_shared<CountingCompiler>();
};

TEST_F(CacheTest, TruncatedAtAnyLength) {
  Get();
  const std::string path = Entry();
  const std::string whole = test::ReadText(path);
  ASSERT_GT(whole.size(), 100u);
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    test::WriteText(path, whole.substr(0, length));
    ExpectRecompiled("cut to " + std::to_string(length) + " bytes");
    EXPECT_EQ(test::ReadText(path), whole);
  }
}

TEST_F(CacheTest, AnyByteChanged) {
  Get();
  const std::string path = Entry();
  const std::string whole = test::ReadText(path);
  for (std::size_t at = 0; at < whole.size(); at += 3) {
    std::string garbled = whole;
    garbled[at] ^= 0x20;
    test::WriteText(path, garbled);
    ExpectRecompiled("byte " + std::to_string(at));
  }
}

TEST_F(CacheTest, TrailingBytes) {
  Get();
  const std::string path = Entry();
  test::WriteText(path, test::ReadText(path) + "x");
  ExpectRecompiled("one byte more");
}

TEST_F(CacheTest, SoundEntryOfAnotherKernel) {
  Get();
  const std::string path = Entry();
  test::WriteText(path, EncodeImage(KeyNamed("another"), ImageOf("another kernel's code")));
  ExpectRecompiled("foreign");
}

TEST_F(CacheTest, EntryThatOthersMayChange) {
  Get();
  const std::string path = Entry();
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  ExpectRecompiled("world-writable");
  struct stat status = {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
}

TEST_F(CacheTest, EntryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "NOT TESTED: only root can give a file to another user";
  Get();
  ASSERT_EQ(chown(Entry().c_str(), 65534, 65534), 0);
  ExpectRecompiled("another user's");
}

TEST_F(CacheTest, EntryThatIsNoFile) {
  Get();
  const std::string path = Entry();
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ExpectRecompiled("a pipe, which must not block");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  // A folder cannot be replaced by a file: works without the cache.
  EXPECT_EQ(Get()->origin, KernelImage::Origin::kCompiled);
  EXPECT_EQ(Get()->origin, KernelImage::Origin::kCompiled);
}

TEST_F(CacheTest, FolderIsPrivateAndHoldsNothingElse) {
  Get();
  struct stat status = {};
  ASSERT_EQ(stat(Folder().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0700u);
  EXPECT_TRUE(Entry().ends_with(".heedimg"));
}

TEST_F(CacheTest, FolderThatOthersMayChangeIsNotWrittenTo) {
  std::filesystem::create_directory(Folder());
  ASSERT_EQ(chmod(Folder().c_str(), 0777), 0);
  EXPECT_EQ(Get()->origin, KernelImage::Origin::kCompiled);
  EXPECT_TRUE(core::os::ListFolder(Folder()).empty());
}

TEST_F(CacheTest, ReadOnlyFolder) {
  EXPECT_TRUE(test::InChildProcess([&] {
    std::filesystem::create_directory(Folder());
    if (chmod(Folder().c_str(), 0500) != 0) return false;
    const Image image = Get();
    const bool is_compiled = image != nullptr && image->origin == KernelImage::Origin::kCompiled;
    return is_compiled && core::os::ListFolder(Folder()).empty() && compiler->num_compiled == 1;
  }));
}

TEST_F(CacheTest, ReadOnlyFolderStillServesWhatItHolds) {
  EXPECT_TRUE(test::InChildProcess([&] {
    Get();
    if (chmod(Folder().c_str(), 0500) != 0) return false;
    return Get()->origin == KernelImage::Origin::kDiskCache;
  }));
}

TEST_F(CacheTest, FolderThatCannotBeMade) {
  for (const char* below : {"/proc/heed_no_such_place", "/dev/null/heed"}) {
    KernelStoreConfig config = Config();
    config.cache_folder = below;
    KernelStore store(config);
    Image image;
    EXPECT_TRUE(store.Get(SourceNamed("f"), kSm80, &image).ok()) << below;
  }
}

TEST_F(CacheTest, FullDisk) {
  EXPECT_TRUE(test::InChildProcess([&] {
    // A file may not grow beyond 64 bytes: a write beyond fails as on a full disk.
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {64, 64};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    KernelStore store(Config());
    Image image;
    return store.Get(SourceNamed("f"), kSm80, &image).ok() &&
           store.Get(SourceNamed("g"), kSm80, &image).ok() &&
           core::os::ListFolder(Folder()).empty();  // no half-written file stays
  }));
}

TEST_F(CacheTest, TwoProcessesWritingOneEntry) {
  constexpr int kNumRounds = 200;
  const ImageKey key = KeyNamed("k");
  // Images long enough to be written in several pages.
  const std::string texts[] = {std::string(300'000, 'a'), std::string(300'000, 'b')};
  std::vector<int> writers;
  for (const std::string& text : texts) {
    writers.push_back(test::StartChildProcess([&] {
      KernelCache cache(Folder());
      for (int round = 0; round < kNumRounds; ++round) cache.Keep(key, ImageOf(text));
      KernelImage image;
      return cache.Find(key, &image);
    }));
  }
  writers.push_back(test::StartChildProcess([&] {
    const KernelCache cache(Folder());
    int num_found = 0;
    for (int attempt = 0; attempt < 1'000'000 && num_found < kNumRounds; ++attempt) {
      const bool is_there = core::os::IsRegularFile(cache.EntryPath(key));
      KernelImage image;
      if (cache.Find(key, &image)) {
        const std::string text = test::TextOf(image);
        if (text != texts[0] && text != texts[1]) return false;
        ++num_found;
      } else if (is_there) {
        return false;  // an entry that is there is whole
      }
    }
    return num_found == kNumRounds;
  }));
  for (const int writer : writers) EXPECT_TRUE(test::WaitForChild(writer));
  EXPECT_EQ(core::os::ListFolder(Folder()).size(), 1u) << "temporary files were left behind";
}

TEST(CacheFolder, FollowsTheEnvironment) {
  const test::ScopedVariable on("HEED_CACHE", nullptr);
  const test::ScopedVariable own("HEED_CACHE_DIR", "/own");
  const test::ScopedVariable xdg("XDG_CACHE_HOME", "/xdg");
  const test::ScopedVariable home("HOME", "/home/someone");
  std::string reason;
  EXPECT_EQ(CacheFolder(&reason), "/own");
  {
    const test::ScopedVariable off("HEED_CACHE", "0");
    EXPECT_EQ(CacheFolder(&reason), "");
    EXPECT_EQ(reason, "HEED_CACHE=0");
  }
  {
    const test::ScopedVariable relative("HEED_CACHE_DIR", "relative");
    const test::TemporaryFolder folder;
    const std::string log = folder.Path("log");
    const test::ScopedVariable logged("HEED_LOG", ("warn:" + log).c_str());
    EXPECT_EQ(CacheFolder(&reason), "/xdg/heed");
    EXPECT_EQ(CacheFolder(&reason), "/xdg/heed");
    std::ifstream lines(log);
    std::string line;
    std::getline(lines, line);
    EXPECT_NE(line.find("HEED_CACHE_DIR = relative: must be an absolute path"), std::string::npos)
        << line;
    EXPECT_FALSE(std::getline(lines, line)) << "said again: " << line;
  }
  const test::ScopedVariable no_own("HEED_CACHE_DIR", nullptr);
  EXPECT_EQ(CacheFolder(&reason), "/xdg/heed");
  const test::ScopedVariable relative_xdg("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(CacheFolder(&reason), "/home/someone/.cache/heed");
  const test::ScopedVariable no_home("HOME", nullptr);
  EXPECT_EQ(CacheFolder(&reason), "");
  EXPECT_NE(reason.find("HOME"), std::string::npos);
}

TEST_F(CacheTest, MissingHomeMeansNoCache) {
  KernelStoreConfig config = Config();
  config.cache_folder.clear();
  KernelStore store(config);
  Image image;
  EXPECT_TRUE(store.Get(SourceNamed("f"), kSm80, &image).ok());
  EXPECT_FALSE(std::filesystem::exists(Folder()));
}

TEST_F(CacheTest, FaultsAreNamedInTheLog) {
  const std::string log = folder.Path("log");
  Get();
  const std::string path = Entry();
  test::WriteText(path, "garbage");
  const test::ScopedVariable level("HEED_LOG", ("warn:" + log).c_str());
  Get();
  const std::string text = test::ReadText(log);
  EXPECT_NE(text.find(path), std::string::npos) << text;
  EXPECT_TRUE(text.starts_with("heed: warn: kernel cache: ")) << text;
}

}  // namespace
}  // namespace heed::cuda
