// Building packs: which kernels, what is reported, and what a failure leaves behind.
#include "cuda/pack_builder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/os/files.h"
#include "cuda/fixture.h"
#include "cuda/pack.h"

namespace heed::cuda {
namespace {

using core::Status;
using test::CountingCompiler;
using test::kTwoSources;
using test::SourceNamed;

struct PackBuilderTest : ::testing::Test {
  PackBuilderTest() {
    tools.sources = kTwoSources;
    tools.find_compiler = test::Always(compiler);
    // Three kernels for every architecture, one more from 90 on.
    tools.list_kernels = [](const CompileTarget& target) {
      std::vector<KernelSource> kernels = {SourceNamed("f"), SourceNamed("g"), SourceNamed("h")};
      if (target.major >= 9) kernels.push_back(SourceNamed("new"));
      return kernels;
    };
    order.path = folder.Path("x.heedpack");
    order.archs = "80,90a";
    order.num_threads = 3;
  }
  // "80 f_label" for each entry, in order.
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    std::shared_ptr<const Pack> pack;
    EXPECT_TRUE(Pack::Open(order.path, &pack).ok());
    if (pack == nullptr) return names;
    for (const PackEntry& entry : pack->entries()) names.push_back(entry.arch + " " + entry.label);
    return names;
  }
  void ExpectNoFile() const { EXPECT_TRUE(core::os::ListFolder(folder.path()).empty()); }

  test::TemporaryFolder folder;
  std::shared_ptr<CountingCompiler> compiler = std::make_shared<CountingCompiler>();
  PackTools tools;
  PackOrder order;
};

TEST_F(PackBuilderTest, HoldsEveryKernelOfEveryArchitecture) {
  ASSERT_TRUE(BuildPackWith(tools, order).ok());
  const std::vector<std::string> expected = {"80 f_label",   "80 g_label",  "80 h_label",
                                             "90a f_label",  "90a g_label", "90a h_label",
                                             "90a new_label"};
  EXPECT_EQ(Entries(), expected);
  std::shared_ptr<const Pack> pack;
  ASSERT_TRUE(Pack::Open(order.path, &pack).ok());
  EXPECT_EQ(pack->facts().nvrtc_version, "13.0");
  KernelImage image;
  ASSERT_TRUE(pack->Read(pack->entries()[6], &image).ok());
  EXPECT_EQ(test::TextOf(image), "cubin 90a new traits first second");
}

TEST_F(PackBuilderTest, ThePatternChoosesByLabel) {
  order.kernels = "?_label";
  order.archs = "90";
  ASSERT_TRUE(BuildPackWith(tools, order).ok());
  EXPECT_EQ(Entries(), (std::vector<std::string>{"90 f_label", "90 g_label", "90 h_label"}));
  order.kernels = "*ew*";
  ASSERT_TRUE(BuildPackWith(tools, order).ok());
  EXPECT_EQ(Entries(), std::vector<std::string>{"90 new_label"});
}

TEST_F(PackBuilderTest, EqualKernelsAreHeldOnce) {
  tools.list_kernels = [](const CompileTarget&) {
    return std::vector<KernelSource>{SourceNamed("f"), SourceNamed("f")};
  };
  ASSERT_TRUE(BuildPackWith(tools, order).ok());
  EXPECT_EQ(Entries(), (std::vector<std::string>{"80 f_label", "90a f_label"}));
  EXPECT_EQ(compiler->num_compiled, 2);
}

TEST_F(PackBuilderTest, ReportsFromNothingToAll) {
  std::vector<std::int64_t> done;
  order.progress = [&](std::int64_t num_done, std::int64_t num_kernels, const std::string& label) {
    EXPECT_EQ(num_kernels, 7);
    EXPECT_EQ(label.empty(), num_done == 0);
    done.push_back(num_done);
  };
  ASSERT_TRUE(BuildPackWith(tools, order).ok());
  EXPECT_EQ(done, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(PackBuilderTest, OneFailureFailsTheWholeAndLeavesNoFile) {
  compiler->num_failures_left = 1;
  const Status status = BuildPackWith(tools, order);
  EXPECT_EQ(status.message(), "planted failure");
  EXPECT_LT(compiler->num_compiled, 7) << "the rest was compiled for nothing";
  ExpectNoFile();
}

TEST_F(PackBuilderTest, AnArchitectureThatNvrtcDoesNotKnowIsRefused) {
  for (const char* archs : {"80,130", "121", "70"}) {
    order.archs = archs;
    const Status status = BuildPackWith(tools, order);
    EXPECT_EQ(status.code(), HEED_UNAVAILABLE) << archs;
    EXPECT_NE(status.message().find("75, 80, 86, 89, 90, 100, 120"), std::string::npos);
  }
  EXPECT_EQ(compiler->num_compiled, 0) << "PTX or an older cubin must not stand in";
  ExpectNoFile();
}

TEST_F(PackBuilderTest, WrongOrdersAreNamed) {
  for (const char* archs : {"80,", ",80", "80;90", "sm_80", "80, 90"}) {
    order.archs = archs;
    const Status status = BuildPackWith(tools, order);
    EXPECT_EQ(status.code(), HEED_INVALID_ARGUMENT);
    EXPECT_NE(status.message().find(archs), std::string::npos) << status.message();
  }
  order.archs = "80";
  order.kernels = "nothing*";
  EXPECT_NE(BuildPackWith(tools, order).message().find("nothing*"), std::string::npos);
  order.kernels.clear();
  order.path = folder.Path("no/x.heedpack");
  EXPECT_NE(BuildPackWith(tools, order).message().find("no/x.heedpack"), std::string::npos);
  EXPECT_EQ(compiler->num_compiled, 0) << "found out after the work";
  ExpectNoFile();
}

TEST_F(PackBuilderTest, TheDefaultArchitecturesAreGood) {
  order.archs.clear();
  ASSERT_TRUE(BuildPackWith(tools, order).ok());
  const std::string archs = kDefaultPackArchs;
  const auto num_archs = 1 + std::count(archs.begin(), archs.end(), ',');
  const std::vector<std::string> entries = Entries();
  EXPECT_GE(entries.size(), 3u * static_cast<std::size_t>(num_archs));
  for (const char* entry : {"75 f_label", "80 f_label", "90a new_label", "120 new_label"}) {
    EXPECT_NE(std::find(entries.begin(), entries.end(), entry), entries.end()) << entry;
  }
}

TEST(FitsPattern, AsFileNames) {
  for (const auto& [text, pattern] : {std::pair{"abc", "abc"},
                                      {"abc", "*"},
                                      {"", "*"},
                                      {"", ""},
                                      {"abc", "a*"},
                                      {"abc", "*c"},
                                      {"abc", "?b?"},
                                      {"abcabd", "*ab?"},
                                      {"aab", "*ab"},
                                      {"a.b.c", "a*.c"},
                                      {"abc", "**"},
                                      {"a*c", "a*c"}}) {
    EXPECT_TRUE(FitsPattern(text, pattern)) << text << " " << pattern;
  }
  for (const auto& [text, pattern] : {std::pair{"abc", "ab"},
                                      {"abc", ""},
                                      {"", "?"},
                                      {"abc", "b*"},
                                      {"abc", "*b"},
                                      {"abc", "????"},
                                      {"ab", "a*b*c"}}) {
    EXPECT_FALSE(FitsPattern(text, pattern)) << text << " " << pattern;
  }
}

}  // namespace
}  // namespace heed::cuda
