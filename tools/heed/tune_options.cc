#include "tune_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "errors.h"

namespace heed::tools {

void AddTuneOptions(CLI::App* tune, TuneOptions* options) {
  constexpr const char* kGroup = "Tuning";
  tune->add_option("--rounds", options->num_rounds, "rounds, each of which runs every row (7)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->group(kGroup);
  tune->add_option("--slice-seconds", options->slice_seconds,
                   "shortest time of a row in a round, at most 60 (0.01)")
      ->check(CLI::Range(1e-6, 60.0))
      ->type_name("S")
      ->group(kGroup);
  tune->add_option("--gpu", options->gpu, "device number with --backend cuda (0)")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N")
      ->group(kGroup);
  tune->add_flag("--dry-run", options->dry_run, "measure, store nothing")->group(kGroup);
  tune->add_flag("--list", options->list, "show every stored choice, measure nothing")
      ->group(kGroup);
  tune->add_flag("--json", options->json, "with --list: print JSON")->group(kGroup);
  tune->add_flag("--clear", options->clear, "remove every stored choice")->group(kGroup);
}

void RequireTuneEffect(const CLI::App& tune, const TuneOptions& options, heed_backend_t backend) {
  if (options.json && !options.list) throw InputError("--json: belongs to --list");
  if (tune.count("--seed") > 0) {
    throw InputError("--seed: has no effect, the library draws tensors of its own; leave it out");
  }
  if (tune.count("--forbid-slower") > 0) {
    throw InputError(
        "--forbid-slower: has no effect, every row that can run is measured; leave it out");
  }
  if (tune.count("--gpu") > 0 && backend != HEED_BACKEND_CUDA) {
    throw InputError("--gpu: belongs to --backend cuda");
  }
  if (!options.list && !options.clear) return;
  const std::string used = options.list ? "--list" : "--clear";
  for (const CLI::Option* option : tune.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == used || (options.list && name == "--json")) continue;
    throw InputError(name + ": has no effect beside " + used + "; leave it out");
  }
}

}  // namespace heed::tools
