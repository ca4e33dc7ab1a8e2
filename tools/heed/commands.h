// The subcommands. Each returns an ExitCode and throws InputError or LibraryError.
#ifndef HEED_TOOLS_COMMANDS_H_
#define HEED_TOOLS_COMMANDS_H_

#include "options.h"

namespace heed::tools {

int RunInfo(const Options& options);
int RunExplain(const Options& options);
int RunForward(const Options& options);
int RunCheck(const Options& options);
int RunBench(const Options& options);
int RunPack(const Options& options);
int RunTune(const Options& options);

}  // namespace heed::tools

#endif  // HEED_TOOLS_COMMANDS_H_
