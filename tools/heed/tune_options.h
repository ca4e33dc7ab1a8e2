// Options of heed tune beside those of the problem.
#ifndef HEED_TOOLS_TUNE_OPTIONS_H_
#define HEED_TOOLS_TUNE_OPTIONS_H_

#include <cstdint>

#include "heed/heed.h"

namespace CLI {
class App;
}

namespace heed::tools {

struct TuneOptions {
  std::int32_t num_rounds = 0;  // 0 = the library's default, here and below
  double slice_seconds = 0.0;
  std::int32_t gpu = 0;  // ordinal, of --backend cuda
  bool dry_run = false;
  bool list = false;
  bool clear = false;
  bool json = false;
};

void AddTuneOptions(CLI::App* tune, TuneOptions* options);
// Throws InputError for what nothing would read.
void RequireTuneEffect(const CLI::App& tune, const TuneOptions& options, heed_backend_t backend);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TUNE_OPTIONS_H_
