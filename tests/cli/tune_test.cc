// heed tune from outside, on the CPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "process.h"

namespace heed::test {
namespace {

using Words = std::vector<std::string>;

struct TuneCli : ::testing::Test {
  Outcome Run(const std::string& command, const Words& arguments,
              const std::string& setting = "HEED_TUNE=on") const {
    Words words = {command};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return RunTool(words, {"HEED_CACHE_DIR=" + folder.Path("cache"), setting});
  }
  // A small problem, little effort.
  Outcome Tune(Words arguments, const std::string& setting = "HEED_TUNE=on") const {
    const Words small = {"--heads", "2", "--sq", "64", "--d", "32"};
    const Words quick = {"--rounds", "3", "--slice-seconds", "0.0001"};
    arguments.insert(arguments.begin(), small.begin(), small.end());
    arguments.insert(arguments.end(), quick.begin(), quick.end());
    return Run("tune", arguments, setting);
  }
  std::string Explained(const std::string& setting = "HEED_TUNE=on") const {
    return Run("explain", {"--heads", "2", "--sq", "64", "--d", "32"}, setting).out;
  }
  static bool Has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  void ExpectError(const Outcome& outcome, int exit_code, const std::string& part) const {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out;
    EXPECT_TRUE(outcome.err.starts_with("heed: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_TRUE(Has(outcome.err, part)) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }

  TemporaryFolder folder;
};

TEST_F(TuneCli, MeasuresStoresListsAndClears) {
  EXPECT_FALSE(Has(Explained(), "tuning: "));
  const Outcome tuned = Tune({});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_EQ(tuned.err, "");
  EXPECT_TRUE(tuned.out.starts_with("row ")) << tuned.out;
  for (const char* part :
       {"median us", "cpu.generic.forward.f32", "1.000", "default", "chosen", "; stored\n"}) {
    EXPECT_TRUE(Has(tuned.out, part)) << part << ": " << tuned.out;
  }
  EXPECT_FALSE(Has(tuned.out, "refused")) << tuned.out;
  EXPECT_TRUE(Has(Explained(), "tuning: ")) << Explained();
  EXPECT_FALSE(Has(Explained("HEED_TUNE=off"), "tuning: "));

  const Outcome listed = Run("tune", {"--list"});
  EXPECT_EQ(listed.exit_code, 0);
  EXPECT_TRUE(Has(listed.out, "forward f32 d=32 dv=32 heads=2")) << listed.out;
  EXPECT_TRUE(Has(listed.out, "1 choice in ")) << listed.out;
  const Outcome json = Run("tune", {"--list", "--json"});
  EXPECT_TRUE(Has(json.out, "\"made_for_this_library\": true")) << json.out;

  EXPECT_EQ(Run("tune", {"--clear"}).out, "1 choice removed\n");
  EXPECT_EQ(Run("tune", {"--clear"}).out, "0 choices removed\n");
  EXPECT_FALSE(Has(Explained(), "tuning: "));
}

TEST_F(TuneCli, ADryRunStoresNothing) {
  const Outcome tuned = Tune({"--dry-run", "--causal", "--with", "alibi,sinks,bias"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_TRUE(Has(tuned.out, "(dry run: not stored)\n")) << tuned.out;
  EXPECT_TRUE(folder.Names().empty());
}

TEST_F(TuneCli, BackwardCalls) {
  const Outcome tuned = Tune({"--op", "backward", "--dtype", "bf16"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_TRUE(Has(tuned.out, "cpu.generic.backward.bf16")) << tuned.out;
  EXPECT_FALSE(Has(tuned.out, "refused")) << tuned.out;
}

TEST_F(TuneCli, RefusesWrongUse) {
  ExpectError(Tune({"--op", "decode"}), 3, "HEED_UNSUPPORTED: op = decode: heed_tune measures");
  ExpectError(Tune({"--fixed-split"}), 3, "exec.fixed_split");
  ExpectError(Tune({"--backend", "reference"}), 3, "exec.backend = reference");
  ExpectError(Tune({"--kernel", "cpu.generic.forward.f32.d576.q12k128"}), 2, "exec.kernel = cpu.");
  ExpectError(Tune({"--d", "9000"}), 2, "--d");  // given twice
  ExpectError(Tune({"--gpu", "1"}), 2, "--gpu: belongs to --backend cuda");
  ExpectError(Tune({"--seed", "1"}), 2, "--seed");
  ExpectError(Tune({"--forbid-slower"}), 2, "--forbid-slower: has no effect");
  ExpectError(Run("tune", {"--rounds", "0"}), 2, "--rounds");
  ExpectError(Run("tune", {"--slice-seconds", "nan"}), 2, "slice_seconds = nan");
  ExpectError(Run("tune", {"--d", "9000"}), 3, "no kernel row");
  ExpectError(Run("tune", {"--json"}), 2, "--json: belongs to --list");
  ExpectError(Run("tune", {"--list", "--d", "64"}), 2, "--d: has no effect beside --list");
  ExpectError(Run("tune", {"--clear", "--list"}), 2, "no effect beside");
  ExpectError(Tune({}, "HEED_CACHE=0"), 3, "tuning cannot be stored: HEED_CACHE=0");
  ExpectError(Run("tune", {"--list"}, "HEED_CACHE=0"), 3, "HEED_CACHE=0");
}

}  // namespace
}  // namespace heed::test
