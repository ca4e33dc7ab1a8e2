// Options that would have no effect beside others: they are refused, not ignored.
#ifndef HEED_TOOLS_OPTION_RULES_H_
#define HEED_TOOLS_OPTION_RULES_H_

#include "options.h"

namespace CLI {
class App;
}

namespace heed::tools {

// The group of the options that describe random tensors.
inline constexpr const char* kRandomInputGroup = "Random input";

// Throws InputError for the first option given to `subcommand` that nothing would read.
void RequireEffect(const CLI::App& subcommand, const Options& options);

}  // namespace heed::tools

#endif  // HEED_TOOLS_OPTION_RULES_H_
