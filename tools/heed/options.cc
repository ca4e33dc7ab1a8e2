#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <sstream>

#include "errors.h"
#include "option_rules.h"

namespace heed::tools {
namespace {

template <class T>
using NameMap = std::map<std::string, T>;

const NameMap<heed_backend_t> kBackends = {{"auto", HEED_BACKEND_AUTO},
                                           {"cpu", HEED_BACKEND_CPU},
                                           {"cuda", HEED_BACKEND_CUDA},
                                           {"webgpu", HEED_BACKEND_WEBGPU},
                                           {"reference", HEED_BACKEND_REFERENCE}};
const NameMap<heed_alignment_t> kAlignments = {{"bottom-right", HEED_ALIGN_BOTTOM_RIGHT},
                                               {"top-left", HEED_ALIGN_TOP_LEFT}};
const NameMap<BenchOp> kBenchOps = {
    {"forward", BenchOp::kForward}, {"backward", BenchOp::kBackward}, {"decode", BenchOp::kDecode}};
const NameMap<BenchInt8> kBenchInt8 = {{"f32", BenchInt8::kF32},
                                       {"bf16", BenchInt8::kBf16},
                                       {"u8", BenchInt8::kU8},
                                       {"fixed", BenchInt8::kFixed}};
const NameMap<BenchCache> kBenchCaches = {{"plain", BenchCache::kPlain},
                                          {"int8", BenchCache::kInt8}};
const NameMap<Layout> kLayouts = {{"bshd", Layout::kRowsHeads}, {"bhsd", Layout::kHeadsRows}};

// An option whose value is one of a few names.
template <class T>
void AddChoice(CLI::App* app, const char* flag, const NameMap<T>& names, T* value,
               std::string help) {
  std::vector<std::string> choices;
  for (const auto& [name, unused] : names) choices.push_back(name);
  app->add_option_function<std::string>(
         flag, [&names, value](const std::string& name) { *value = names.at(name); },
         std::move(help))
      ->check(CLI::IsMember(choices))
      ->type_name("NAME");
}

template <class T>
void AddFlag(CLI::App* app, const char* flag, T* value, T when_given, const char* help) {
  app->add_flag_callback(
      flag, [value, when_given] { *value = when_given; }, help);
}

void AddFileOptions(CLI::App* app, Options* options) {
  FileOptions& files = options->files;
  app->add_option("--input", files.input,
                  ".npz or .safetensors with tensors named q, k, v, bias, ...")
      ->type_name("FILE")
      ->group("Input files");
  app->add_option("--prefix", files.prefix, "put before every name looked up in --input")
      ->type_name("TEXT")
      ->group("Input files");
  for (std::size_t i = 0; i < kNumOperands; ++i) {
    std::string flag = std::string("--") + kOperands[i].name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    app->add_option(flag, files.paths[i], kOperands[i].help)
        ->type_name("FILE[:NAME]")
        ->group("Input files");
  }
}

void AddShapeOptions(CLI::App* app, Options* options) {
  ShapeOptions& shape = options->shape;
  const auto add = [&](const char* flag, std::int64_t* value, const char* help) {
    app->add_option(flag, *value, help)->type_name("N")->group(kRandomInputGroup);
  };
  add("--batch", &shape.batch, "sequences (1)");
  add("--heads", &shape.num_q_heads, "query heads (8)");
  add("--kv-heads", &shape.num_kv_heads, "key-value heads (as --heads)");
  add("--sq", &shape.q_len, "queries of a sequence (1024)");
  add("--skv", &shape.kv_len, "keys of a sequence (as --sq)");
  add("--d", &shape.head_dim, "head dim of q and k (64)");
  add("--dv", &shape.head_dim_v, "head dim of v and o (as --d)");
}

void AddFeatureOption(CLI::App* app, Options* options) {
  app->add_option("--with", options->shape.features,
                  "random operands to add: bias, mask, alibi, sinks, varlen, seqused, paged")
      ->delimiter(',')
      ->check(CLI::IsMember({"bias", "mask", "alibi", "sinks", "varlen", "seqused", "paged"}))
      ->type_name("LIST")
      ->group(kRandomInputGroup);
}

void AddTypeOptions(CLI::App* app, Options* options) {
  app->add_option_function<std::string>(
         "--dtype",
         [options](const std::string& name) { options->type = ElementTypeFromName(name); },
         "type of q, k, v and o; converts files (as in the file, f32 for random input)")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "f64"}))
      ->type_name("NAME")
      ->group("Problem");
  app->add_option("--seed", options->seed, "of random input and of dropout (0)")
      ->type_name("N")
      ->group("Problem");
}

void AddScoreOptions(CLI::App* app, Options* options) {
  ScoreOptions& score = options->score;
  app->add_option("--scale", score.scale, "score factor (1 / sqrt(D))")->type_name("X");
  app->add_option("--softcap", score.softcap, "softcap * tanh(s / softcap); 0 = off")
      ->type_name("X");
  AddFlag(app, "--causal", &score.causal, HEED_CAUSAL_ON, "hide later keys");
  AddChoice(app, "--alignment", kAlignments, &score.alignment,
            "where the queries stand among the keys: bottom-right (default), top-left");
  app->add_option("--window", score.window, "keys to the left and right; -1 = unlimited")
      ->delimiter(',')
      ->expected(2)
      ->type_name("L,R");
  app->add_option("--dropout-p", score.dropout_p, "probability in [0, 1)")->type_name("P");
  app->add_option("--offset", score.dropout_offset, "of the dropout random numbers")
      ->type_name("N");
  for (const char* flag :
       {"--scale", "--softcap", "--causal", "--alignment", "--window", "--dropout-p", "--offset"}) {
    app->get_option(flag)->group("Problem");
  }
}

void AddExecOptions(CLI::App* app, Options* options) {
  ExecOptions& exec = options->exec;
  AddChoice(app, "--backend", kBackends, &exec.backend, "auto, cpu, cuda, webgpu or reference");
  app->add_option("--kernel", exec.kernel, "run exactly this kernel id")->type_name("ID");
  app->add_option("--threads", exec.num_threads, "CPU workers (every usable core)")->type_name("N");
  AddFlag(app, "--fixed-split", &exec.fixed_split, HEED_ON,
          "a row's result may not depend on the rest of the batch");
  AddFlag(app, "--forbid-slower", &exec.forbid_slower, HEED_ON, "refuse a slower substitute");
  for (const char* flag :
       {"--backend", "--kernel", "--threads", "--fixed-split", "--forbid-slower"}) {
    app->get_option(flag)->group("Execution");
  }
}

void AddLayoutOption(CLI::App* app, Options* options) {
  AddChoice(app, "--layout", kLayouts, &options->layout,
            "axes of q, k, v and o in memory: bshd (default) or bhsd");
  app->get_option("--layout")->group("Problem");
}

// Of every command that runs or plans a call.
void AddCallOptions(CLI::App* app, Options* options) {
  AddShapeOptions(app, options);
  AddTypeOptions(app, options);
  AddScoreOptions(app, options);
  AddExecOptions(app, options);
}

void AddProblemOptions(CLI::App* app, Options* options) {
  AddFileOptions(app, options);
  AddCallOptions(app, options);
  AddFeatureOption(app, options);
  AddLayoutOption(app, options);
}

void AddRunOptions(CLI::App* app, Options* options) {
  OutputOptions& output = options->output;
  app->add_option("--o", output.o, "attention output")->type_name("FILE")->group("Output files");
  app->add_option("--lse", output.lse, "log-sum-exp of each row")
      ->type_name("FILE")
      ->group("Output files");
  app->add_option("--output", output.both, ".npz or .safetensors for both, named o and lse")
      ->type_name("FILE")
      ->group("Output files");
}

void AddOpOption(CLI::App* app, Options* options, const char* help) {
  AddChoice(app, "--op", kBenchOps, &options->bench.op, help);
}

void AddBenchOptions(CLI::App* app, Options* options) {
  BenchOptions& bench = options->bench;
  AddOpOption(app, options, "forward (default), backward, or decode against a cache of --skv rows");
  AddChoice(app, "--int8", kBenchInt8, &bench.int8,
            "forward over int8 q, k, v: P V in f32, bf16 or u8, or the fixed-point softmax");
  AddLayoutOption(app, options);
  AddChoice(app, "--cache", kBenchCaches, &bench.cache,
            "decode against plain rows (default) or interleaved int8 with a scale a row");
  app->add_option("--preset", bench.preset,
                  "cpu-forward, cpu-backward, cpu-int8, cpu-decode: the project's bars; cpu: all")
      ->check(CLI::IsMember({"cpu-forward", "cpu-backward", "cpu-int8", "cpu-decode", "cpu"}))
      ->type_name("NAME");
  app->add_option("--lengths", bench.lengths, "Sq = Skv of each row")
      ->delimiter(',')
      ->type_name("N,N,...");
  app->add_option("--thread-counts", bench.thread_counts, "CPU workers of each row")
      ->delimiter(',')
      ->type_name("N,N,...");
  app->add_option("--slices", bench.num_slices, "timed slices of each row (9)")
      ->check(CLI::Range(1, 10000))
      ->type_name("N");
  app->add_option("--slice-seconds", bench.min_slice_seconds,
                  "shortest timed slice, 0 to 60 (0.02)")
      ->type_name("S");
  AddFlag(app, "--materialized", &bench.with_materialized, true,
          "beside plain attention that stores the whole score matrix");
  AddFlag(app, "--gate", &bench.must_reach_bars, true, "exit 1 when a bar is missed");
  app->add_option("--json", bench.json_path, "write everything measured")->type_name("FILE");
}

constexpr const char* kFooter =
    R"(Exit codes:
  0 ok; 1 check out of tolerance or bar missed; 2 usage or bad input; 3 library error

Examples:
  heed info
  heed run --q q.npy --k k.npy --v v.npy --causal --o o.npy --lse lse.npy
  heed run --input layer0.safetensors --output result.npz
  heed check --heads 9 --kv-heads 3 --sq 300 --d 64 --dtype bf16 --causal
  heed explain --sq 131072 --d 128
  heed bench --preset cpu-forward --json result.json
  heed bench --heads 1 --d 128 --lengths 1024,4096 --materialized
  heed bench --int8 u8 --heads 1 --d 128 --sq 4096 --thread-counts 1
  heed bench --op backward --heads 1 --d 128 --sq 4096 --thread-counts 1,2
  heed tune --backend cuda --dtype bf16 --causal --batch 4 --heads 16 --sq 4096 --d 128
  heed tune --list
  heed pack build --arch 80,90a -o heed.heedpack)";

struct Subcommands {
  CLI::App* info;
  CLI::App* explain;
  CLI::App* run;
  CLI::App* check;
  CLI::App* bench;
  CLI::App* pack;
  CLI::App* tune;
};

Subcommands DefineSubcommands(CLI::App* app, Options* options) {
  const Subcommands sub = {
      app->add_subcommand("info", "Backends, CPU targets and devices, and why some cannot run"),
      app->add_subcommand("explain", "Which kernel a call would run, and why not the others"),
      app->add_subcommand("run", "Compute attention from files and write o and lse"),
      app->add_subcommand("check", "Compare a kernel with the double-precision oracle"),
      app->add_subcommand("bench", "Time kernels beside the machine's own peak"),
      app->add_subcommand("pack", "Compile GPU kernels ahead of time, and look at what was made"),
      app->add_subcommand("tune",
                          "Measure the kernels that could run a problem and keep the fastest")};
  sub.info->add_flag("--json", options->json, "print JSON");
  AddProblemOptions(sub.explain, options);
  AddProblemOptions(sub.run, options);
  AddProblemOptions(sub.check, options);
  AddRunOptions(sub.run, options);
  AddCallOptions(sub.bench, options);
  AddBenchOptions(sub.bench, options);
  AddPackSubcommands(sub.pack, &options->pack);
  AddCallOptions(sub.tune, options);
  AddFeatureOption(sub.tune, options);
  AddLayoutOption(sub.tune, options);
  AddOpOption(sub.tune, options,
              "forward (default) or backward; decode has nothing to choose from");
  AddTuneOptions(sub.tune, &options->tune);
  return sub;
}

Command Chosen(const Subcommands& sub) {
  if (sub.info->parsed()) return Command::kInfo;
  if (sub.explain->parsed()) return Command::kExplain;
  if (sub.run->parsed()) return Command::kRun;
  if (sub.check->parsed()) return Command::kCheck;
  if (sub.bench->parsed()) return Command::kBench;
  if (sub.tune->parsed()) return Command::kTune;
  return Command::kPack;
}

// What was wrong with the command line. A first word that is no subcommand is not named by CLI11.
std::string ErrorText(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unread = app.remaining();
  std::string text = error.what();
  if (app.get_subcommands().empty() && !unread.empty()) {
    text = "'" + Printable(unread[0]) + "': no such subcommand";
  }
  return text + " (see heed --help)";
}

}  // namespace

ParseOutcome ParseOptions(int argc, char** argv, Options* options) {
  CLI::App app("Exact attention (FlashAttention) from the command line", "heed");
  app.set_version_flag("--version", std::string("heed ") + heed_version());
  app.require_subcommand(1);
  app.footer(kFooter);
  const Subcommands sub = DefineSubcommands(&app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    std::ostringstream text;
    app.exit(success, text, text);
    std::fputs(text.str().c_str(), stdout);
    return ParseOutcome::kHelpShown;
  } catch (const CLI::ParseError& error) {
    throw InputError(ErrorText(app, error));
  }
  options->command = Chosen(sub);
  RequireEffect(*app.get_subcommands()[0], *options);
  if (options->command == Command::kTune) {
    RequireTuneEffect(*sub.tune, options->tune, options->exec.backend);
  }
  for (int i = 0; i < argc; ++i)
    options->command_line += (i == 0 ? "" : " ") + std::string(argv[i]);
  return ParseOutcome::kRun;
}

}  // namespace heed::tools
