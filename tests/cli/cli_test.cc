// The heed tool from outside: what it prints, writes and returns.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "process.h"
#include "tensor_file.h"

namespace heed::test {
namespace {

using tools::Bytes;
using tools::ElementType;
using tools::NamedTensor;
using tools::Tensor;

using Words = std::vector<std::string>;

void Save(const std::string& path, const Bytes& content) {
  WriteFile(path, std::string(content.begin(), content.end()));
}

Tensor RandomTensor(std::uint32_t seed, std::vector<std::int64_t> shape) {
  std::mt19937 generator(seed);
  Tensor tensor = tools::MakeTensor(ElementType::kF32, std::move(shape));
  for (std::int64_t i = 0; i < tensor.NumElements(); ++i) {
    tensor.data<float>()[i] = static_cast<float>(generator() % 2001) / 1000.0f - 1.0f;
  }
  return tensor;
}

Tensor LoadNpy(const std::string& path) {
  const std::string file = ReadFile(path);
  return tools::ParseNpy(reinterpret_cast<const std::uint8_t*>(file.data()), file.size(), path);
}

std::vector<NamedTensor> LoadContainer(const std::string& path) {
  const std::string file = ReadFile(path);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(file.data());
  return path.ends_with(".npz") ? tools::ParseNpz(bytes, file.size(), path)
                                : tools::ParseSafetensors(bytes, file.size(), path);
}

void ExpectClose(const Tensor& a, const Tensor& b, float tolerance) {
  ASSERT_EQ(a.shape, b.shape);
  ASSERT_EQ(a.type, ElementType::kF32);
  ASSERT_EQ(b.type, ElementType::kF32);
  for (std::int64_t i = 0; i < a.NumElements(); ++i) {
    ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], tolerance) << "element " << i;
  }
}

// One line that starts with "heed: " and nothing on stdout.
void ExpectOneLineError(const Outcome& outcome) {
  EXPECT_TRUE(outcome.err.starts_with("heed: ")) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

// q [2,5,4,8], k [2,7,2,8], v [2,7,2,6] as .npy, .npz and .safetensors.
class Cli : public ::testing::Test {
 protected:
  Cli() {
    Save(Path("q.npy"), tools::SerializeNpy(q_));
    Save(Path("k.npy"), tools::SerializeNpy(k_));
    Save(Path("v.npy"), tools::SerializeNpy(v_));
    const std::vector<NamedTensor> named = {{"q", q_}, {"k", k_}, {"v", v_}};
    Save(Path("in.npz"), tools::SerializeNpz(named));
    const std::vector<NamedTensor> layered = {
        {"layer3.q", q_}, {"layer3.k", k_}, {"layer3.v", v_}, {"other", q_}};
    Save(Path("in.safetensors"), tools::SerializeSafetensors(layered));
  }

  std::string Path(const std::string& name) const { return folder_.Path(name); }
  Words NpyInputs() const {
    return {"--q", Path("q.npy"), "--k", Path("k.npy"), "--v", Path("v.npy")};
  }
  Outcome Run(const Words& command, const Words& more = {}) const {
    Words words = command;
    words.insert(words.end(), more.begin(), more.end());
    return RunTool(words);
  }
  // o of a `heed run` with these options on the .npy inputs.
  Tensor RunToTensor(const Words& options) const {
    Words words = {"run"};
    for (const std::string& word : NpyInputs()) words.push_back(word);
    words.insert(words.end(), options.begin(), options.end());
    const Outcome outcome = Run(words, {"--o", Path("result.npy")});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return LoadNpy(Path("result.npy"));
  }

  TemporaryFolder folder_;
  const Tensor q_ = RandomTensor(1, {2, 5, 4, 8});
  const Tensor k_ = RandomTensor(2, {2, 7, 2, 8});
  const Tensor v_ = RandomTensor(3, {2, 7, 2, 6});
};

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

struct BadInput {
  const char* name;
  Words words;  // "@name" stands for a file in the folder
  int exit_code;
  const char* reason;
};

const std::vector<BadInput>& BadInputs() {
  static const std::vector<BadInput> cases = {
      {"NoSubcommand", {}, 2, "subcommand"},
      {"UnknownOption", {"run", "--nope"}, 2, "--nope"},
      {"UnknownBackend", {"check", "--backend", "tpu"}, 2, "--backend"},
      {"WordForNumber", {"check", "--sq", "many"}, 2, "--sq"},
      {"NoInput", {"run", "--o", "@o.npy"}, 2, "give --input"},
      {"NoOutput", {"run", "--input", "@in.npz"}, 2, "--o"},
      {"NoSuchFile", {"run", "--q", "@none.npy", "--o", "@o.npy"}, 2, "none.npy"},
      {"UnknownEnding", {"run", "--q", "@q.bin", "--o", "@o.npy"}, 2, "must end in"},
      {"OutputEnding", {"run", "--input", "@in.npz", "--o", "@o.txt"}, 2, "must end in"},
      {"TwoInOneNpy", {"run", "--input", "@in.npz", "--output", "@o.npy"}, 2, "holds one tensor"},
      {"NoSuchFolder", {"run", "--input", "@in.npz", "--o", "@none/o.npy"}, 2, "cannot create"},
      {"FolderAsInput", {"run", "--q", "@folder.npy", "--o", "@o.npy"}, 2, "not a regular file"},
      {"MissingK", {"run", "--q", "@q.npy", "--o", "@o.npy"}, 2, "give --k or --input"},
      {"MissingName", {"run", "--q", "@in.npz:nope", "--o", "@o.npy"}, 2, "'nope'"},
      {"MissingPrefix",
       {"run", "--input", "@in.npz", "--prefix", "x.", "--o", "@o.npy"},
       2,
       "'x.q'"},
      {"Truncated", {"run", "--input", "@cut.npz", "--o", "@o.npy"}, 2, "cut.npz"},
      {"IntegerQ",
       {"run", "--input", "@in.npz", "--q", "@ints.npy", "--o", "@o.npy"},
       2,
       "floating-point"},
      {"FloatMask",
       {"run", "--input", "@in.npz", "--mask", "@q.npy", "--o", "@o.npy"},
       2,
       "bool or u8"},
      {"FloatLengths",
       {"run", "--input", "@in.npz", "--seqused-kv", "@q.npy", "--o", "@o.npy"},
       2,
       "i32 or i64"},
      {"LengthOverflow",
       {"run", "--input", "@in.npz", "--seqused-kv", "@huge.npy", "--o", "@o.npy"},
       2,
       "int32"},
      {"LengthPastEnd",
       {"run", "--input", "@in.npz", "--seqused-kv", "@long.npy", "--o", "@o.npy"},
       2,
       "seqused_kv"},
      {"FlatQ",
       {"run", "--input", "@in.npz", "--q", "@flat.npy", "--o", "@o.npy"},
       2,
       "q.ndim = 1"},
      {"HeadsDoNotDivide", {"check", "--heads", "5", "--kv-heads", "2"}, 2, "must divide"},
      {"NoHeadDim", {"check", "--d", "0"}, 2, "head_dim"},
      {"NegativeLength", {"check", "--sq", "-5"}, 2, "--sq = -5"},
      {"HugeLength", {"check", "--sq", "4000000000"}, 2, "--sq = 4000000000"},
      {"DropoutOne", {"check", "--dropout-p", "1"}, 2, "dropout_p"},
      {"ScaleNaN", {"check", "--scale", "nan"}, 2, "scale"},
      {"OneSidedWindow", {"check", "--window", "3"}, 2, "--window"},
      {"UnknownKernel", {"check", "--kernel", "cpu.nope"}, 2, "cpu.nope"},
      {"NoSuchPreset", {"bench", "--preset", "nope"}, 2, "--preset"},
      {"PresetAndLengths",
       {"bench", "--preset", "cpu-forward", "--lengths", "8"},
       2,
       "--lengths: is fixed by --preset; leave it out"},
      {"PresetAndHeads",
       {"bench", "--preset", "cpu-forward", "--heads", "3"},
       2,
       "--heads: is fixed"},
      {"PresetAndCausal",
       {"bench", "--preset", "cpu-forward", "--causal"},
       2,
       "--causal: is fixed"},
      {"LengthsAndSq", {"bench", "--lengths", "8", "--sq", "9"}, 2, "--sq: is fixed by --lengths"},
      {"TwoThreadOptions",
       {"bench", "--sq", "8", "--threads", "1", "--thread-counts", "1"},
       2,
       "--threads: is fixed by --thread-counts"},
      {"BenchOfNoLength", {"bench", "--lengths", "8,0"}, 2, "--lengths = 0: must be at least 1"},
      {"BenchOfNoQuery", {"bench", "--sq", "0"}, 2, "--sq = 0: must be at least 1"},
      {"BenchOfNoBatch", {"bench", "--sq", "8", "--batch", "0"}, 2, "--batch = 0"},
      {"SliceSecondsNaN",
       {"bench", "--sq", "8", "--slice-seconds", "nan"},
       2,
       "--slice-seconds = nan: must be from 0 to 60"},
      {"SliceSecondsNegative", {"bench", "--sq", "8", "--slice-seconds", "-1"}, 2, "from 0 to 60"},
      {"UnknownSubcommand", {"foo"}, 2, "'foo': no such subcommand"},
      {"UnknownSubcommandWithOption", {"foo", "--sq", "8"}, 2, "'foo': no such subcommand"},
      {"HeadsBesideFiles",
       {"check", "--input", "@in.npz", "--heads", "3"},
       2,
       "--heads: describes random input; leave it out when files are given"},
      {"FeaturesBesideFiles",
       {"explain", "--input", "@in.npz", "--with", "bias"},
       2,
       "--with: describes random input"},
      {"LengthBesideFiles",
       {"run", "--q", "@q.npy", "--k", "@k.npy", "--v", "@v.npy", "--skv", "7", "--o", "@o.npy"},
       2,
       "--skv: describes random input"},
      {"SeedBesideFiles",
       {"run", "--input", "@in.npz", "--seed", "1", "--o", "@o.npy"},
       2,
       "--seed: has no effect on files without --dropout-p"},
      {"OffsetWithoutDropout",
       {"check", "--sq", "8", "--offset", "1"},
       2,
       "--offset: has no effect without --dropout-p"},
      {"PrefixWithoutInput", {"check", "--sq", "8", "--prefix", "x."}, 2, "--prefix: is for names"},
      {"OutputThreeTimes",
       {"run", "--input", "@in.npz", "--o", "@o.npy", "--lse", "@l.npy", "--output", "@o.npz"},
       2,
       "--output: --o and --lse name both files already"},
      {"BenchJsonFolder", {"bench", "--sq", "8", "--json", "@none/r.json"}, 2, "cannot create"},
      {"ZeroThreads", {"bench", "--sq", "8", "--thread-counts", "0"}, 2, "--thread-counts"},
      {"CpuTensorsOnGpu", {"check", "--sq", "8", "--backend", "webgpu"}, 2, "webgpu"},
      {"NoKernel", {"check", "--sq", "8", "--d", "4000"}, 3, "HEED_UNSUPPORTED"},
  };
  return cases;
}

class CliBadInput : public Cli, public ::testing::WithParamInterface<BadInput> {};

// The answer is one line and a code; files that were there keep their content, and none is new.
TEST_P(CliBadInput, IsRefused) {
  std::filesystem::create_directory(Path("folder.npy"));
  const std::string whole = ReadFile(Path("in.npz"));
  WriteFile(Path("cut.npz"), whole.substr(0, whole.size() / 2));
  WriteFile(Path("o.npy"), "precious");
  const auto save_lengths = [&](const char* name, ElementType type, std::int64_t value) {
    Tensor lengths = tools::MakeTensor(type, {2});
    for (int i = 0; i < 2; ++i) {
      if (type == ElementType::kI64) lengths.data<std::int64_t>()[i] = value;
      if (type == ElementType::kI32) lengths.data<std::int32_t>()[i] = static_cast<int>(value);
    }
    Save(Path(name), tools::SerializeNpy(lengths));
  };
  save_lengths("huge.npy", ElementType::kI64, std::int64_t{1} << 40);
  save_lengths("long.npy", ElementType::kI32, 8);
  save_lengths("ints.npy", ElementType::kI32, 1);
  Save(Path("flat.npy"), tools::SerializeNpy(tools::MakeTensor(ElementType::kF32, {8})));
  const Words before = folder_.Names();

  Words words = GetParam().words;
  for (std::string& word : words) {
    if (word.starts_with('@')) word = Path(word.substr(1));
  }
  const Outcome outcome = RunTool(words);
  EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << outcome.err;
  EXPECT_NE(outcome.err.find(GetParam().reason), std::string::npos) << outcome.err;
  ExpectOneLineError(outcome);
  EXPECT_EQ(ReadFile(Path("o.npy")), "precious");
  EXPECT_EQ(folder_.Names(), before);
}

INSTANTIATE_TEST_SUITE_P(All, CliBadInput, ::testing::ValuesIn(BadInputs()),
                         [](const auto& test) { return std::string(test.param.name); });

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
