// The heed tool from outside: what it prints, writes and returns.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "cli_fixture.h"

namespace heed::test {
namespace {

TEST_F(Cli, HelpAndVersion) {
  const Outcome help = RunTool({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("Examples:"), std::string::npos);
  EXPECT_NE(help.out.find("Exit codes:"), std::string::npos);
  const Outcome run_help = RunTool({"run", "--help"});
  EXPECT_EQ(run_help.exit_code, 0);
  for (const char* flag : {"--alibi-slopes", "--block-table", "--window", "--lse", "--prefix"}) {
    EXPECT_NE(run_help.out.find(flag), std::string::npos) << flag;
  }
  const Outcome version = RunTool({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("heed ")) << version.out;
}

// Whatever is printed must arrive: a full device is a failure of every subcommand.
TEST_F(Cli, FullDeviceIsAFailure) {
  for (const Words& words :
       {Words{"--help"}, Words{"--version"}, Words{"run", "--help"}, Words{"info"},
        Words{"explain", "--sq", "8"}, Words{"check", "--sq", "8"},
        Words{"bench", "--sq", "8", "--slices", "1", "--slice-seconds", "0"}}) {
    const Outcome outcome = RunToolInto("/dev/full", words);
    EXPECT_EQ(outcome.exit_code, 2) << words[0];
    EXPECT_EQ(outcome.err, "heed: cannot write to standard output\n") << words[0];
  }
}

TEST_F(Cli, InfoNamesBackends) {
  const Outcome text = RunTool({"info"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find("cpu"), std::string::npos);
  const Outcome json = RunTool({"info", "--json"});
  EXPECT_EQ(json.exit_code, 0);
  EXPECT_TRUE(json.out.starts_with("{")) << json.out;
}

TEST_F(Cli, ExplainNeedsNoData) {
  // 4 TB of keys: only a plan can be made of them.
  const Outcome outcome =
      RunTool({"explain", "--sq", "1048576", "--skv", "1000000000", "--d", "128"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("kernel"), std::string::npos);
}

TEST_F(Cli, RunMatchesTheReferenceBackend) {
  for (const Words& options :
       {Words{}, Words{"--causal"}, Words{"--causal", "--alignment", "top-left"},
        Words{"--window", "2,1"}, Words{"--window", "-1,0"}, Words{"--scale", "-0.7"},
        Words{"--softcap", "1.5"}, Words{"--dropout-p", "0.25", "--seed", "5", "--offset", "9"}}) {
    Words reference = options;
    reference.insert(reference.end(), {"--backend", "reference"});
    ExpectClose(RunToTensor(options), RunToTensor(reference), 1e-5f);
  }
  // The options really do something.
  const Tensor plain = RunToTensor({});
  EXPECT_NE(plain.bytes, RunToTensor({"--causal"}).bytes);
  EXPECT_NE(plain.bytes, RunToTensor({"--scale", "-0.7"}).bytes);
  EXPECT_EQ(plain.shape, (std::vector<std::int64_t>{2, 5, 4, 6}));
}

TEST_F(Cli, EveryFileFormatGivesTheSameResult) {
  const Tensor expected = RunToTensor({"--causal"});
  const Outcome npz =
      Run({"run", "--input", Path("in.npz"), "--causal"}, {"--output", Path("result.npz")});
  EXPECT_EQ(npz.exit_code, 0) << npz.err;
  const Outcome safetensors =
      Run({"run", "--input", Path("in.safetensors"), "--prefix", "layer3.", "--causal"},
          {"--output", Path("result.safetensors")});
  EXPECT_EQ(safetensors.exit_code, 0) << safetensors.err;
  for (const char* name : {"result.npz", "result.safetensors"}) {
    int num_found = 0;
    for (const NamedTensor& named : LoadContainer(Path(name))) {
      if (named.name == "o") {
        EXPECT_EQ(named.tensor.bytes, expected.bytes);
      }
      if (named.name == "lse") {
        EXPECT_EQ(named.tensor.shape, (std::vector<std::int64_t>{2, 4, 5}));
      }
      ++num_found;
    }
    EXPECT_EQ(num_found, 2) << name;
  }
}

TEST_F(Cli, NamedTensorsOverrideTheContainer) {
  const Outcome outcome = Run({"run", "--input", Path("in.npz"), "--q",
                               Path("in.safetensors") + ":other", "--k", Path("in.npz")},
                              {"--o", Path("result.npy")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(LoadNpy(Path("result.npy")).bytes, RunToTensor({}).bytes);
}

TEST_F(Cli, HeadsFirstLayoutGivesTransposedResult) {
  const auto transposed = [](const Tensor& t) {
    Tensor out = tools::MakeTensor(t.type, {t.shape[0], t.shape[2], t.shape[1], t.shape[3]});
    std::int64_t i = 0;
    for (std::int64_t b = 0; b < t.shape[0]; ++b)
      for (std::int64_t h = 0; h < t.shape[2]; ++h)
        for (std::int64_t s = 0; s < t.shape[1]; ++s)
          for (std::int64_t d = 0; d < t.shape[3]; ++d)
            out.data<float>()[i++] =
                t.data<float>()[((b * t.shape[1] + s) * t.shape[2] + h) * t.shape[3] + d];
    return out;
  };
  const Tensor expected = transposed(RunToTensor({"--causal"}));
  const std::vector<NamedTensor> named = {
      {"q", transposed(q_)}, {"k", transposed(k_)}, {"v", transposed(v_)}};
  Save(Path("bhsd.npz"), tools::SerializeNpz(named));
  const Outcome outcome = Run({"run", "--input", Path("bhsd.npz"), "--layout", "bhsd", "--causal"},
                              {"--o", Path("result.npy")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  ExpectClose(LoadNpy(Path("result.npy")), expected, 1e-6f);
}

TEST_F(Cli, SixteenBitTypesAreConverted) {
  const Tensor expected = RunToTensor({});
  const Tensor bf16 = RunToTensor({"--dtype", "bf16"});  // widened to f32 in .npy
  ExpectClose(bf16, expected, 0.03f);
  EXPECT_NE(bf16.bytes, expected.bytes);
  EXPECT_EQ(RunToTensor({"--dtype", "f16"}).type, ElementType::kF16);
  const Outcome outcome = Run({"run", "--input", Path("in.npz"), "--dtype", "bf16"},
                              {"--o", Path("result.safetensors")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(LoadContainer(Path("result.safetensors"))[0].tensor.type, ElementType::kBF16);
}

TEST_F(Cli, CheckPassesOnEveryFeature) {
  for (const Words& options :
       {Words{"--input", Path("in.npz"), "--causal"}, Words{"--with", "bias,mask"},
        Words{"--with", "alibi,sinks", "--batch", "2"},
        Words{"--with", "varlen", "--batch", "3", "--causal"},
        Words{"--with", "seqused", "--batch", "3"}, Words{"--with", "paged", "--batch", "2"},
        Words{"--dtype", "bf16", "--kv-heads", "2"}, Words{"--dtype", "f16", "--dv", "24"},
        Words{"--layout", "bhsd", "--window", "9,2"}, Words{"--skv", "0"}, Words{"--batch", "0"},
        Words{"--dtype", "f64", "--backend", "reference"}}) {
    Words words = {"check"};
    if (options[0] != "--input") words = {"check", "--heads", "4", "--sq", "37", "--d", "40"};
    const Outcome outcome = Run(words, options);
    EXPECT_EQ(outcome.exit_code, 0) << options[1] << ": " << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("passed"), std::string::npos);
  }
}

#ifdef HEED_PLANTED_FAULT_PATH
TEST_F(Cli, CheckFindsPlantedFaults) {
  for (const std::string fault : {"offset", "nan", "lse"}) {
    const Outcome outcome =
        RunTool({"check", "--sq", "20", "--heads", "2", "--d", "16"},
                {"LD_PRELOAD=" HEED_PLANTED_FAULT_PATH, "HEED_TEST_FAULT=" + fault});
    EXPECT_EQ(outcome.exit_code, 1) << fault << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("FAILED"), std::string::npos);
    EXPECT_NE(outcome.out.find("out of tolerance 1 of"), std::string::npos) << outcome.out;
    const char* worst = fault == "lse" ? "worst at [0, 0, 3]" : "worst at [0, 0, 0, 7]";
    EXPECT_NE(outcome.out.find(worst), std::string::npos) << outcome.out;
  }
  const Outcome sound = RunTool({"check", "--sq", "20", "--heads", "2", "--d", "16"},
                                {"LD_PRELOAD=" HEED_PLANTED_FAULT_PATH});
  EXPECT_EQ(sound.exit_code, 0) << sound.out;
}
#endif

// The number after "key": in JSON text.
double JsonNumber(const std::string& json, const std::string& key) {
  const std::size_t found = json.find("\"" + key + "\": ");
  EXPECT_NE(found, std::string::npos) << key;
  return found == std::string::npos ? NAN : std::stod(json.substr(found + key.size() + 4));
}

const Words kQuickBench = {"--heads",         "2",    "--d", "16", "--slices", "2",
                           "--slice-seconds", "0.001"};

TEST_F(Cli, BenchMeasuresBesideRoofAndBaseline) {
  Words words = {"bench",           "--lengths", "70",     "--causal",    "--materialized",
                 "--thread-counts", "2",         "--json", Path("r.json")};
  const Outcome outcome = Run(words, kQuickBench);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");  // no bar without a terminal
  EXPECT_NE(outcome.out.find("fma_f32"), std::string::npos) << outcome.out;
  const std::string json = ReadFile(Path("r.json"));
  EXPECT_GT(JsonNumber(json,
                       "fraction"
                       "\": {\n            \"median"),
            0.0);
  EXPECT_LT(JsonNumber(json, "max_abs_difference"), 1e-5);
  // 70 * 71 / 2 visible pairs, 2 heads, 4 * 16 operations.
  EXPECT_EQ(JsonNumber(json, "useful_flops"), 70 * 71 / 2 * 2 * 4 * 16);
  EXPECT_EQ(JsonNumber(json, "score_bytes"), 2 * 70 * 70 * 4);
  EXPECT_EQ(JsonNumber(json, "threads"), 2);
}

TEST_F(Cli, BenchTimesTheBackwardPassAndDecode) {
  const struct {
    const char* op;
    double useful_flops;
  } cases[] = {{"backward", 70.0 * 71 / 2 * 2 * 10 * 16}, {"decode", 70.0 * 71 / 2 * 2 * 4 * 16}};
  for (const auto& [op, useful_flops] : cases) {
    const Words words = {"bench",     "--op", op,       "--sq",         "70",
                         "--threads", "1",    "--json", Path("r.json"), "--causal"};
    const Outcome outcome = Run(words, kQuickBench);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(std::string(".") + op + "."), std::string::npos) << outcome.out;
    EXPECT_EQ(JsonNumber(ReadFile(Path("r.json")), "useful_flops"), useful_flops) << op;
  }
  const Outcome refused =
      Run({"bench", "--op", "backward", "--sq", "70", "--materialized"}, kQuickBench);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--materialized"), std::string::npos) << refused.err;
}

// Both orders of memory are read as what they are.
TEST_F(Cli, BenchTimesDecodeOfAnInt8CacheBesideReads) {
  for (const char* layout : {"bshd", "bhsd"}) {
    const Words words = {"bench", "--op",      "decode", "--cache", "int8",        "--layout",
                         layout,  "--sq",      "1",      "--skv",   "48",          "--kv-heads",
                         "1",     "--threads", "1",      "--json",  Path("r.json")};
    const Outcome outcome = Run(words, kQuickBench);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("% of read ("), std::string::npos) << outcome.out;
    const std::string json = ReadFile(Path("r.json"));
    EXPECT_EQ(JsonNumber(json, "useful_flops"), 48.0 * 2 * 4 * 16);
    // q and o, lse, the cache in bytes, and its length.
    EXPECT_EQ(JsonNumber(json, "tensor_bytes"), 2 * 2 * 16 * 4 + 2 * 4 + 2 * 48 * 16 + 4);
  }
}

TEST_F(Cli, BaselineAgreesOnRaggedShapesAndWindows) {
  for (const Words& options : {Words{"--skv", "301", "--d", "19", "--dv", "35", "--heads", "3"},
                               Words{"--window", "5,2", "--skv", "40", "--heads", "1"},
                               Words{"--skv", "20", "--causal", "--heads", "6", "--kv-heads", "2"},
                               Words{"--dtype", "f16", "--batch", "2", "--scale", "0.4"}}) {
    Words words = {"bench",           "--sq", "50",     "--materialized", "--slices", "1",
                   "--slice-seconds", "0",    "--json", Path("r.json")};
    const Outcome outcome = Run(words, options);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_LT(JsonNumber(ReadFile(Path("r.json")), "max_abs_difference"), 2e-3) << options[1];
  }
}

TEST_F(Cli, BaselineThatDoesNotFitSaysSo) {
  // 4 heads x 600000^2 scores x 4 bytes = 5.8 TB; one visible key a row keeps the kernel quick.
  const Outcome outcome = Run({"bench", "--sq", "600000", "--heads", "4", "--d", "4", "--window",
                               "0,0", "--materialized", "--slices", "1"},
                              {"--slice-seconds", "0"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("not run: would need 5760.0 GB"), std::string::npos) << outcome.out;
}

TEST_F(Cli, CacheThatDoesNotFitIsRefused) {
  // 8 heads x 2e9 keys x 256 elements of keys and values x 4 bytes.
  const Outcome outcome = Run({"bench", "--op", "decode", "--skv", "2000000000", "--heads", "8",
                               "--d", "128", "--json", Path("r.json")},
                              {});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find(": keys and values would need 16384.0 GB, "), std::string::npos)
      << outcome.err;
  EXPECT_EQ(ReadFile(Path("r.json")), "");
}

TEST_F(Cli, InterruptLeavesNoFile) {
  Process process({"bench", "--sq", "512", "--slices", "10000", "--json", Path("r.json")}, {});
  const Words before = folder_.Names();
  for (int i = 0; i < 1000 && folder_.Names() == before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  process.Signal(SIGINT);
  const Outcome outcome = process.Wait();
  EXPECT_EQ(outcome.signal_number, SIGINT);
  for (const std::string& name : folder_.Names()) {
    EXPECT_FALSE(name.starts_with("r.json")) << name;
  }
}

}  // namespace
}  // namespace heed::test
