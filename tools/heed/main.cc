// heed: the command-line tool. Failures become one line on stderr and an exit code.
#include <cstdio>
#include <exception>
#include <new>

#include "commands.h"
#include "errors.h"
#include "options.h"
#include "os.h"

namespace heed::tools {
namespace {

int Dispatch(const Options& options) {
  switch (options.command) {
    case Command::kInfo:
      return RunInfo(options);
    case Command::kExplain:
      return RunExplain(options);
    case Command::kRun:
      return RunForward(options);
    case Command::kCheck:
      return RunCheck(options);
    case Command::kBench:
      return RunBench(options);
    case Command::kPack:
      return RunPack(options);
    case Command::kTune:
      return RunTune(options);
  }
  return kExitBadInput;
}

int Fail(int exit_code, const char* message) {
  std::fprintf(stderr, "heed: %s\n", message);
  return exit_code;
}

// A failed flush in between empties the buffer, so only the error mark remembers it.
bool OutputIsComplete() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

int Run(int argc, char** argv) {
  Options options;
  if (ParseOptions(argc, argv, &options) == ParseOutcome::kHelpShown) return kExitOk;
  os::RemoveTemporariesOnSignal();
  return Dispatch(options);
}

int Main(int argc, char** argv) {
  try {
    const int exit_code = Run(argc, argv);
    if (!OutputIsComplete()) return Fail(kExitBadInput, "cannot write to standard output");
    return exit_code;
  } catch (const InputError& error) {
    return Fail(kExitBadInput, error.what());
  } catch (const LibraryError& error) {
    std::fprintf(stderr, "heed: %s: %s\n", heed_status_name(error.status()), error.what());
    return kExitLibrary;
  } catch (const std::bad_alloc&) {
    return Fail(kExitLibrary, "out of memory");
  } catch (const std::exception& error) {
    return Fail(kExitLibrary, error.what());
  }
}

}  // namespace
}  // namespace heed::tools

int main(int argc, char** argv) { return heed::tools::Main(argc, argv); }
