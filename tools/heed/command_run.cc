#include <cstdio>
#include <utility>

#include "call.h"
#include "commands.h"
#include "errors.h"
#include "tensor_store.h"

namespace heed::tools {
namespace {

struct OutputPaths {
  std::string o, lse;
};

OutputPaths ResolvePaths(const OutputOptions& options) {
  OutputPaths paths{options.o.empty() ? options.both : options.o,
                    options.lse.empty() ? options.both : options.lse};
  if (paths.o.empty()) throw InputError("run: give --o or --output, the file to write to");
  CheckOutputPath(paths.o);
  if (!paths.lse.empty()) CheckOutputPath(paths.lse);
  return paths;
}

}  // namespace

int RunForward(const Options& options) {
  if (!options.files.any()) throw InputError("run: give --input, or --q, --k and --v");
  const OutputPaths paths = ResolvePaths(options.output);
  const Inputs inputs = MakeInputs(options, Fill::kValues);
  Outputs outputs = MakeOutputs(inputs);
  const ForwardCall call(inputs, options, outputs);
  const heed_plan_info_t plan = call.Plan();
  call.Run();

  const std::string o_shape = ShapeText(outputs.o.shape);
  const char* o_type = ElementTypeName(outputs.o.type);
  std::vector<OutputTensor> files;
  files.push_back({paths.o, {"o", std::move(outputs.o)}});
  if (!paths.lse.empty()) files.push_back({paths.lse, {"lse", std::move(outputs.lse)}});
  SaveTensors(std::move(files));
  std::printf("kernel  %s\no       %s %s -> %s\n", plan.kernel_id, o_type, o_shape.c_str(),
              Printable(paths.o).c_str());
  if (!paths.lse.empty()) std::printf("lse     %s\n", Printable(paths.lse).c_str());
  return kExitOk;
}

}  // namespace heed::tools
