#include "pack_options.h"

#include <CLI/CLI.hpp>

namespace heed::tools {

void AddPackSubcommands(CLI::App* pack, PackOptions* options) {
  pack->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, PackAction action) {
    CLI::App* sub = pack->add_subcommand(name, help);
    sub->callback([options, action] { options->action = action; });
    return sub;
  };
  CLI::App* build = add("build", "Compile GPU kernels into a file", PackAction::kBuild);
  build
      ->add_option("--arch", options->archs,
                   "architectures (one per generation and shared-memory size)")
      ->type_name("N,N,...");
  build
      ->add_option("--rows", options->rows,
                   "kernels to take, by the labels that list shows; * and ? as in file names (all)")
      ->type_name("PATTERN");
  build
      ->add_option("--features", options->features,
                   "also kernels with these: sets separated by commas, features of a set joined by "
                   "+; all = each alone (window, softcap, alibi, bias, bias-f32, mask, sinks, "
                   "dropout, packed, paged, split, deterministic, d-bias, int8, fp8, int4)")
      ->type_name("LIST");
  build
      ->add_option("--for", options->problems,
                   "kernels of this problem, in the words of heed explain, and without --features "
                   "no others; @FILE holds one problem a line; may be repeated")
      ->type_name("OPTIONS")
      ->allow_extra_args(false);
  build->add_flag("--gradients", options->with_gradients,
                  "also the kernels of these problems' backward passes");
  build->add_option("--threads", options->num_threads, "kernels compiled at once (every core)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  build->add_option("-o,--output", options->path, "the file to write")
      ->required()
      ->type_name("FILE");
  CLI::App* list = add("list", "Who built a pack, and every kernel in it", PackAction::kList);
  list->add_flag("--json", options->json, "print JSON");
  CLI::App* verify = add("verify", "Read all of a pack: is it sound, and made for this library?",
                         PackAction::kVerify);
  for (CLI::App* reader : {list, verify}) {
    reader->add_option("file", options->path, "the pack")->required()->type_name("FILE");
  }
}

}  // namespace heed::tools
