// Kernel packs: what is in them, how they are found, and what becomes of bad ones.
#include "cuda/pack.h"

#include <gtest/gtest.h>

#include "core/os/files.h"
#include "cuda/fixture.h"

namespace heed::cuda {
namespace {

using core::Status;
using test::CountingCompiler;
using test::kSm80;
using test::kTwoSources;
using test::SourceNamed;
using Image = std::shared_ptr<const KernelImage>;

PackItem ItemFor(const KernelSource& source, const ArchChoice& choice) {
  PackItem item;
  item.key = SourceKey(DigestOfSources(kTwoSources), source, choice);
  item.label = source.label;
  item.function = source.function;
  const std::string text = CountingCompiler::TextOf(kTwoSources, source, choice);
  item.image.cubin.assign(text.begin(), text.end());
  item.image.arch = choice.arch;
  item.image.log = "log of " + source.function;
  return item;
}

struct PackTest : ::testing::Test {
  PackTest() {
    facts.sources = DigestOfSources(kTwoSources);
    facts.library_version = "0.1.0";
    facts.nvrtc_version = "13.0";
  }
  // f for 80 and 90a, g for 80.
  std::string WriteGoodPack() {
    path = folder.Path("a.heedpack");
    const std::vector<PackItem> items = {ItemFor(SourceNamed("f"), {"80"}),
                                         ItemFor(SourceNamed("f"), {"90a"}),
                                         ItemFor(SourceNamed("g"), {"80"})};
    EXPECT_TRUE(WritePack(path, facts, items).ok());
    return path;
  }
  KernelStoreConfig Config() const {
    KernelStoreConfig config;
    config.sources = kTwoSources;
    config.find_compiler = test::Never();
    config.pack_paths = {path};
    return config;
  }

  test::TemporaryFolder folder;
  PackFacts facts;
  std::string path;
};

TEST_F(PackTest, HoldsWhatWasPutIn) {
  WriteGoodPack();
  std::shared_ptr<const Pack> pack;
  ASSERT_TRUE(Pack::Open(path, &pack).ok());
  EXPECT_EQ(pack->facts().sources, facts.sources);
  EXPECT_EQ(pack->facts().library_version, "0.1.0");
  EXPECT_EQ(pack->facts().nvrtc_version, "13.0");
  ASSERT_EQ(pack->entries().size(), 3u);
  EXPECT_EQ(pack->entries()[1].arch, "90a");
  EXPECT_EQ(pack->entries()[2].label, "g_label");
  KernelImage image;
  ASSERT_TRUE(pack->Read(pack->entries()[2], &image).ok());
  EXPECT_EQ(test::TextOf(image), "cubin 80 g traits first second");
  EXPECT_EQ(image.log, "log of g");
  EXPECT_EQ(image.origin, KernelImage::Origin::kPack);
}

TEST_F(PackTest, TheSameContentGivesTheSameBytes) {
  WriteGoodPack();
  const std::string first = test::ReadText(path);
  WriteGoodPack();
  EXPECT_EQ(test::ReadText(path), first);
}

TEST_F(PackTest, ServesWithoutACompiler) {
  WriteGoodPack();
  KernelStore store(Config());
  EXPECT_EQ(store.WhyNothing(0), "");
  Image image;
  ASSERT_TRUE(store.Get(SourceNamed("f"), {9, 0, true}, &image).ok());
  EXPECT_EQ(image->origin, KernelImage::Origin::kPack);
  EXPECT_EQ(test::TextOf(*image), "cubin 90a f traits first second");
  EXPECT_EQ(store.counters().num_pack_hits, 1);
  // Arch-specific code runs on its architecture; code for 8.0 runs on 8.9 too, but not on 9.0.
  ASSERT_TRUE(store.Get(SourceNamed("f"), {9, 0}, &image).ok());
  EXPECT_EQ(image->arch, "90a");
  ASSERT_TRUE(store.Get(SourceNamed("g"), {8, 9}, &image).ok());
  EXPECT_EQ(image->arch, "80");
  const Status absent = store.Get(SourceNamed("g"), {9, 0}, &image);
  EXPECT_EQ(absent.code(), HEED_UNAVAILABLE);
  EXPECT_NE(absent.message().find(path), std::string::npos) << absent.message();
}

TEST_F(PackTest, ComesBeforeDiskCacheAndCompiler) {
  WriteGoodPack();
  KernelStoreConfig config = Config();
  const auto compiler = std::make_shared<CountingCompiler>();
  config.find_compiler = test::Always(compiler);
  config.cache_folder = folder.Path("cache");
  KernelStore store(config);
  Image image;
  ASSERT_TRUE(store.Get(SourceNamed("f"), kSm80, &image).ok());
  EXPECT_EQ(image->origin, KernelImage::Origin::kPack);
  EXPECT_EQ(compiler->num_compiled, 0);
  ASSERT_TRUE(store.Get(SourceNamed("h"), kSm80, &image).ok());
  EXPECT_EQ(image->origin, KernelImage::Origin::kCompiled);
}

TEST_F(PackTest, OfOtherSourcesIsNotUsed) {
  facts.sources[0] ^= 1;
  WriteGoodPack();
  Image image;
  KernelStore optional(Config());
  EXPECT_EQ(optional.Get(SourceNamed("f"), kSm80, &image).code(), HEED_UNAVAILABLE);
  KernelStoreConfig config = Config();
  config.pack_duty = KernelStoreConfig::PackDuty::kRequired;
  config.find_compiler = test::Always(std::make_shared<CountingCompiler>());
  KernelStore required(config);
  const Status status = required.Get(SourceNamed("f"), kSm80, &image);
  EXPECT_EQ(status.code(), HEED_UNAVAILABLE) << "HEED_PACK named it, so nothing stands in for it";
  EXPECT_NE(status.message().find("build it again"), std::string::npos) << status.message();
  EXPECT_EQ(required.WhyNothing(0), status.message());
}

TEST_F(PackTest, NewerThanTheDriverIsNotUsed) {
  WriteGoodPack();
  KernelStore store(Config());
  Image image;
  EXPECT_EQ(store.Get(SourceNamed("f"), {.major = 8, .driver_version = 12080}, &image).code(),
            HEED_UNAVAILABLE);
  EXPECT_TRUE(store.Get(SourceNamed("f"), {.major = 8, .driver_version = 13000}, &image).ok());
}

TEST_F(PackTest, AnyByteChangedIsNoticed) {
  const std::string whole = test::ReadText(WriteGoodPack());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string garbled = whole;
    garbled[at] ^= 0x20;
    test::WriteText(path, garbled);
    std::shared_ptr<const Pack> pack;
    Status status = Pack::Open(path, &pack);
    bool all_sound = status.ok();
    for (std::size_t i = 0; all_sound && i < pack->entries().size(); ++i) {
      KernelImage image;
      status = pack->Read(pack->entries()[i], &image);
      all_sound = status.ok();
    }
    EXPECT_FALSE(all_sound) << "byte " << at;
    EXPECT_TRUE(status.message().starts_with(path)) << status.message();
  }
}

TEST_F(PackTest, CutAnywhereIsNoticed) {
  const std::string whole = test::ReadText(WriteGoodPack());
  for (std::size_t length = 0; length < whole.size(); length += 5) {
    test::WriteText(path, whole.substr(0, length));
    std::shared_ptr<const Pack> pack;
    bool all_sound = Pack::Open(path, &pack).ok();
    for (std::size_t i = 0; all_sound && i < pack->entries().size(); ++i) {
      KernelImage image;
      all_sound = pack->Read(pack->entries()[i], &image).ok();
    }
    EXPECT_FALSE(all_sound) << "cut to " << length;
  }
}

TEST_F(PackTest, BytesOfNoImageAreNoticed) {
  const std::string content = test::ReadText(WriteGoodPack());
  std::shared_ptr<const Pack> pack;
  ASSERT_TRUE(Pack::Open(path, &pack).ok());
  EXPECT_TRUE(pack->CheckExtent().ok());
  test::WriteText(path, content + "abc");
  ASSERT_TRUE(Pack::Open(path, &pack).ok());
  EXPECT_NE(pack->CheckExtent().message().find("3 bytes after its last image"), std::string::npos)
      << pack->CheckExtent().message();
}

TEST_F(PackTest, ADamagedImageIsCompiledInstead) {
  std::string content = test::ReadText(WriteGoodPack());
  content[content.find("log of g") + 4] ^= 1;
  test::WriteText(path, content);
  KernelStoreConfig config = Config();
  config.find_compiler = test::Always(std::make_shared<CountingCompiler>());
  KernelStore store(config);
  Image image;
  ASSERT_TRUE(store.Get(SourceNamed("g"), kSm80, &image).ok());
  EXPECT_EQ(image->origin, KernelImage::Origin::kCompiled);
  ASSERT_TRUE(store.Get(SourceNamed("f"), kSm80, &image).ok());
  EXPECT_EQ(image->origin, KernelImage::Origin::kPack);
}

TEST_F(PackTest, ReplacedWhileOpenKeepsServingTheOldOne) {
  WriteGoodPack();
  KernelStore store(Config());
  ASSERT_TRUE(WritePack(path, facts, {}).ok());
  Image image;
  ASSERT_TRUE(store.Get(SourceNamed("f"), kSm80, &image).ok());
  EXPECT_EQ(test::TextOf(*image), "cubin 80 f traits first second");
}

TEST_F(PackTest, WritingIsAllOrNothing) {
  WriteGoodPack();
  const std::string before = test::ReadText(path);
  const Status status = WritePack(folder.Path("nowhere/a.heedpack"), facts, {});
  EXPECT_EQ(status.code(), HEED_INVALID_ARGUMENT);
  EXPECT_NE(status.message().find("nowhere/a.heedpack"), std::string::npos);
  EXPECT_EQ(test::ReadText(path), before);
  EXPECT_EQ(core::os::ListFolder(folder.path()).size(), 1u);
}

TEST(PackPaths, AreWhatHeedPackNames) {
  const test::ScopedVariable named("HEED_PACK", "/some/where.heedpack");
  EXPECT_EQ(PackPaths(), std::vector<std::string>{"/some/where.heedpack"});
}

}  // namespace
}  // namespace heed::cuda
