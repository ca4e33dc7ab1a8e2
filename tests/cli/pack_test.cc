// heed pack from outside. What needs a compiler skips, loudly, on a machine without NVRTC;
// HEED_REQUIRE_NVRTC=1 turns the skip into a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "process.h"

namespace heed::test {
namespace {

using Words = std::vector<std::string>;

struct PackCli : ::testing::Test {
  std::string Path(const std::string& name) const { return folder.Path(name); }
  Outcome Pack(const Words& arguments, const std::string& setting = "HEED_LOG=off") const {
    Words words = {"pack"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return RunTool(words, {"HEED_CACHE_DIR=" + Path("cache"), setting});
  }
  // x.heedpack with one small kernel for two architectures.
  Outcome BuildSmall() const {
    return Pack(
        {"build", "--arch", "80,90a", "--rows", "*dropout_mask*", "-o", Path("x.heedpack")});
  }
  static bool IsWithoutNvrtc(const Outcome& outcome) {
    const char* required = std::getenv("HEED_REQUIRE_NVRTC");
    const bool may_skip = required == nullptr || std::string(required) != "1";
    return may_skip && outcome.err.starts_with("heed: HEED_UNAVAILABLE: NVRTC");
  }
  void ExpectError(const Outcome& outcome, int exit_code, const std::string& part) const {
    EXPECT_EQ(outcome.exit_code, exit_code);
    EXPECT_TRUE(outcome.err.starts_with("heed: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }

  TemporaryFolder folder;
};

TEST_F(PackCli, BuildsListsAndVerifies) {
  const Outcome built = BuildSmall();
  if (IsWithoutNvrtc(built)) GTEST_SKIP() << "NOT TESTED: " << built.err;
  ASSERT_EQ(built.exit_code, 0) << built.err;
  EXPECT_EQ(built.out, Path("x.heedpack") + ": 2 kernels\n");
  EXPECT_EQ(built.err, "") << "no progress bar without a terminal";

  const Outcome listed = Pack({"list", Path("x.heedpack")});
  EXPECT_EQ(listed.exit_code, 0);
  for (const char* part : {"for this library", "90a    cuda.dropout_mask", "2 kernels\n"}) {
    EXPECT_NE(listed.out.find(part), std::string::npos) << part << ": " << listed.out;
  }
  const Outcome json = Pack({"list", "--json", Path("x.heedpack")});
  EXPECT_NE(json.out.find("\"made_for_this_library\": true"), std::string::npos) << json.out;

  const Outcome verified = Pack({"verify", Path("x.heedpack")});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_EQ(verified.out, Path("x.heedpack") + ": ok\n");

  std::string content = ReadFile(Path("x.heedpack"));
  WriteFile(Path("x.heedpack"), content + "trailing");
  ExpectError(Pack({"verify", Path("x.heedpack")}), 2, "8 bytes after its last image");
  content[content.size() - 100] ^= 1;
  WriteFile(Path("x.heedpack"), content);
  ExpectError(Pack({"verify", Path("x.heedpack")}), 2, "damaged");
  EXPECT_EQ(Pack({"list", Path("x.heedpack")}).exit_code, 0) << "the index is sound";
}

TEST_F(PackCli, HoldsTheKernelsOfProblems) {
  WriteFile(Path("problems"), "# one a line\n\n--d 40 --dtype f16 --heads 64 --sq 4096\n");
  const Outcome built =
      Pack({"build", "--arch", "75,80", "--for", "@" + Path("problems"), "--for",
            "--d 16 --dtype bf16 --sq 1 --skv 8192 --with seqused", "-o", Path("x.heedpack")});
  if (IsWithoutNvrtc(built)) GTEST_SKIP() << "NOT TESTED: " << built.err;
  ASSERT_EQ(built.exit_code, 0) << built.err;
  const std::string listed = Pack({"list", Path("x.heedpack")}).out;
  for (const char* part :
       {"75     cuda.sm75.forward.f16.d64.", "80     cuda.sm80.forward.f16.d64.", ".call1\n",
        "80     cuda.sm80.forward.bf16.d64.", "80     cuda.combine.call2\n"}) {
    EXPECT_NE(listed.find(part), std::string::npos) << part << ": " << listed;
  }
  EXPECT_EQ(listed.find("75     cuda.sm75.forward.bf16"), std::string::npos) << "has no such row";
  EXPECT_EQ(listed.find("d128"), std::string::npos) << "not asked for: " << listed;
}

TEST_F(PackCli, TheSameKernelsGiveTheSameFile) {
  const Outcome built = BuildSmall();
  if (IsWithoutNvrtc(built)) GTEST_SKIP() << "NOT TESTED: " << built.err;
  const std::string first = ReadFile(Path("x.heedpack"));
  ASSERT_NE(first, "");
  std::filesystem::remove_all(Path("cache"));
  BuildSmall();
  EXPECT_EQ(ReadFile(Path("x.heedpack")), first);
}

TEST_F(PackCli, WithoutNvrtcBuildSaysWhatToInstall) {
  const Outcome outcome =
      Pack({"build", "-o", Path("x.heedpack")}, "HEED_NVRTC=/nowhere/libnvrtc.so");
  ExpectError(outcome, 3, "pip install");
  EXPECT_TRUE(folder.Names().empty());
}

TEST_F(PackCli, RefusesWrongUse) {
  ExpectError(Pack({}), 2, "subcommand");
  ExpectError(Pack({"build"}), 2, "--output");
  ExpectError(Pack({"verify"}), 2, "file");
  ExpectError(Pack({"verify", Path("absent")}), 2, "absent: cannot open");
  ExpectError(Pack({"build", "--arch", "80;90", "-o", Path("x")}), 2, "archs = 80;90");
  ExpectError(Pack({"build", "--arch", "", "-o", Path("x")}), 2, "archs = \"\"");
  ExpectError(Pack({"build", "--features", "", "-o", Path("x")}), 2, "features = \"\"");
  ExpectError(Pack({"build", "--features", "window,softcup", "-o", Path("x")}), 2, "'softcup'");
  ExpectError(Pack({"build", "--for", "--d 64 --dd 3", "-o", Path("x")}), 2, "--dd");
  ExpectError(Pack({"build", "--for", "@" + Path("none"), "-o", Path("x")}), 2, "cannot read");
  ExpectError(Pack({"build", "--for", "--d 9000", "-o", Path("x")}), 3, "calls[0]: no kernel row");
  ExpectError(Pack({"build", "--gradients", "-o", Path("x")}), 2, "--for");
  ExpectError(Pack({"build", "-o", Path("no/x")}), 2, "no/x: cannot create");
  ExpectError(Pack({"build", "--threads", "0", "-o", Path("x")}), 2, "--threads");
  WriteFile(Path("text"), "not a pack");
  for (const char* command : {"list", "verify"}) {
    ExpectError(Pack({command, Path("text")}), 2, "text: is not a kernel pack");
  }
}

}  // namespace
}  // namespace heed::test
