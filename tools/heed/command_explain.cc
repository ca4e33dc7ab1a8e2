#include <cstdio>

#include "call.h"
#include "commands.h"
#include "errors.h"

namespace heed::tools {

int RunExplain(const Options& options) {
  const Inputs inputs = MakeInputs(options, Fill::kShapesOnly);
  const Outputs outputs = OutputShapes(inputs);
  const ForwardCall call(inputs, options, outputs);
  std::string text = call.Explain();
  if (!text.ends_with('\n')) text += '\n';
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace heed::tools
