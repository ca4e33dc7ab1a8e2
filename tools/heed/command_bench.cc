#include "commands.h"
#include "errors.h"

namespace heed::tools {

int RunBench(const Options&) { throw InputError("bench: not built"); }

}  // namespace heed::tools
