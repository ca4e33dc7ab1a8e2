// Options of heed pack.
#ifndef HEED_TOOLS_PACK_OPTIONS_H_
#define HEED_TOOLS_PACK_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heed::tools {

enum class PackAction : std::uint8_t { kBuild, kList, kVerify };

struct PackOptions {
  PackAction action = PackAction::kBuild;
  std::string path;
  std::optional<std::string> archs;
  std::string rows;
  std::optional<std::string> features;
  std::vector<std::string> problems;  // options of `heed explain`, or @FILE with one problem a line
  bool with_gradients = false;
  std::int32_t num_threads = 0;
  bool json = false;
};

// Adds build, list and verify to `heed pack`.
void AddPackSubcommands(CLI::App* pack, PackOptions* options);

}  // namespace heed::tools

#endif  // HEED_TOOLS_PACK_OPTIONS_H_
