#include "option_rules.h"

#include <CLI/CLI.hpp>
#include <initializer_list>

#include "errors.h"

namespace heed::tools {
namespace {

bool IsGiven(const CLI::App& subcommand, const char* flag) {
  const CLI::Option* option = subcommand.get_option_no_throw(flag);
  return option != nullptr && option->count() > 0;
}

void RefuseGiven(const CLI::App& subcommand, std::initializer_list<const char*> flags,
                 const std::string& why) {
  for (const char* flag : flags) {
    if (IsGiven(subcommand, flag)) throw InputError(std::string(flag) + ": " + why);
  }
}

void RefuseRandomInput(const CLI::App& subcommand, const std::string& why) {
  for (const CLI::Option* option : subcommand.get_options()) {
    if (option->get_group() != kRandomInputGroup || option->count() == 0) continue;
    throw InputError(option->get_name() + ": " + why);
  }
}

}  // namespace

void RequireEffect(const CLI::App& subcommand, const Options& options) {
  const bool has_dropout = options.score.dropout_p != 0.0;
  if (options.files.any()) {
    RefuseRandomInput(subcommand, "describes random input; leave it out when files are given");
    if (!has_dropout) {
      RefuseGiven(subcommand, {"--seed"},
                  "has no effect on files without --dropout-p; leave it out");
    }
  }
  if (options.files.input.empty()) {
    RefuseGiven(subcommand, {"--prefix"}, "is for names in --input, which is missing");
  }
  if (!has_dropout) {
    RefuseGiven(subcommand, {"--offset"}, "has no effect without --dropout-p; leave it out");
  }
  if (!options.output.o.empty() && !options.output.lse.empty()) {
    RefuseGiven(subcommand, {"--output"}, "--o and --lse name both files already; leave it out");
  }
  if (!options.bench.preset.empty()) {
    const char* why = "is fixed by --preset; leave it out";
    RefuseRandomInput(subcommand, why);
    RefuseGiven(
        subcommand,
        {"--op", "--cache", "--layout", "--lengths", "--thread-counts", "--threads", "--dtype",
         "--scale", "--softcap", "--causal", "--alignment", "--window", "--dropout-p", "--offset"},
        why);
  }
  if (options.bench.op != BenchOp::kDecode) {
    RefuseGiven(subcommand, {"--cache"}, "is of --op decode only; leave it out");
  }
  const std::string& preset = options.bench.preset;
  if (options.bench.op != BenchOp::kForward || preset == "cpu-backward" || preset == "cpu-decode") {
    RefuseGiven(subcommand, {"--materialized"}, "is a baseline of --op forward only; leave it out");
  }
  if (!options.bench.lengths.empty()) {
    RefuseGiven(subcommand, {"--sq", "--skv"}, "is fixed by --lengths; leave it out");
  }
  if (!options.bench.thread_counts.empty()) {
    RefuseGiven(subcommand, {"--threads"}, "is fixed by --thread-counts; leave it out");
  }
}

}  // namespace heed::tools
