// Command lines and files that the tool refuses.
#include "cli_fixture.h"

namespace heed::test {
namespace {

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
      {"PresetAndOp", {"bench", "--preset", "cpu-forward", "--op", "decode"}, 2, "--op: is fixed"},
      {"CacheWithoutDecode",
       {"bench", "--sq", "8", "--cache", "int8"},
       2,
       "--cache: is of --op decode only"},
      {"PresetAndCache", {"bench", "--preset", "cpu", "--cache", "int8"}, 2, "--cache: is fixed"},
      {"PresetAndLayout",
       {"bench", "--preset", "cpu", "--layout", "bhsd"},
       2,
       "--layout: is fixed"},
      {"BackwardAndBaseline",
       {"bench", "--preset", "cpu-backward", "--materialized"},
       2,
       "--materialized: is a baseline"},
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
      {"CpuTensorsOnGpu", {"check", "--sq", "8", "--backend", "cuda"}, 2, "cuda"},
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

}  // namespace
}  // namespace heed::test
