#include <map>
#include <set>
#include <string>

#include "convert.h"
#include "errors.h"
#include "inputs.h"
#include "tensor_store.h"

namespace heed::tools {
namespace {

// Where each operand is to be found.
struct Request {
  std::size_t operand;
  std::string name;
};
using RequestsByFile = std::map<std::string, std::vector<Request>>;

// An operand named on the command line must exist; one looked up in --input may be absent.
RequestsByFile NamedRequests(const FileOptions& files) {
  RequestsByFile requests;
  for (std::size_t i = 0; i < kNumOperands; ++i) {
    if (files.paths[i].empty()) continue;
    TensorPath path = SplitTensorPath(files.paths[i]);
    if (path.name.empty() && !path.file.ends_with(".npy")) path.name = kOperands[i].name;
    requests[path.file].push_back({i, path.name});
  }
  return requests;
}

void Fulfil(const std::string& file, const std::vector<Request>& requests, Inputs* inputs) {
  std::set<std::string, std::less<>> names;
  for (const Request& request : requests) names.insert(request.name);
  const auto loaded =
      LoadTensors(file, [&](std::string_view name) { return names.contains(name); });
  for (const Request& request : requests) {
    for (const NamedTensor& named : loaded) {
      if (named.name == request.name) inputs->tensors[request.operand] = named.tensor;
    }
  }
}

void RequireNamed(const std::string& file, const std::vector<Request>& requests,
                  const Inputs& inputs) {
  for (const Request& request : requests) {
    if (inputs.tensors[request.operand]) continue;
    throw InputError(Printable(file) + ": holds no tensor named '" + Printable(request.name) + "'");
  }
}

std::vector<Request> ContainerRequests(const FileOptions& files) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < kNumOperands; ++i) {
    if (files.paths[i].empty()) requests.push_back({i, files.prefix + kOperands[i].name});
  }
  return requests;
}

bool IsInteger(ElementType type) { return type == ElementType::kI32 || type == ElementType::kI64; }

[[noreturn]] void FailType(const OperandInfo& info, const Tensor& tensor, const char* rule) {
  throw InputError(std::string(info.name) + ": its type " + ElementTypeName(tensor.type) + " " +
                   rule);
}

// Brings an operand to a type that the library takes.
void Adapt(const OperandInfo& info, const Options& options, ElementType q_type, Tensor* tensor) {
  switch (info.kind) {
    case OperandKind::kRows:
      if (!IsFloating(tensor->type)) FailType(info, *tensor, "must be floating-point");
      if (options.type) *tensor = ConvertTensor(*tensor, *options.type);
      return;
    case OperandKind::kScore:
      if (!IsFloating(tensor->type)) FailType(info, *tensor, "must be floating-point");
      if (tensor->type != q_type) *tensor = ConvertTensor(*tensor, ElementType::kF32);
      return;
    case OperandKind::kBoolean:
      if (tensor->type != ElementType::kBool && tensor->type != ElementType::kU8) {
        FailType(info, *tensor, "must be bool or u8");
      }
      return;
    case OperandKind::kPerHead:
      if (!IsFloating(tensor->type)) FailType(info, *tensor, "must be floating-point");
      *tensor = ConvertTensor(*tensor, ElementType::kF32);
      return;
    case OperandKind::kIndex:
      if (!IsInteger(tensor->type)) FailType(info, *tensor, "must be i32 or i64");
      *tensor = ConvertToInt32(*tensor, info.name);
      return;
  }
}

}  // namespace

Inputs LoadInputs(const Options& options) {
  Inputs inputs;
  inputs.layout = options.layout;
  for (const auto& [file, requests] : NamedRequests(options.files)) {
    Fulfil(file, requests, &inputs);
    RequireNamed(file, requests, inputs);
  }
  if (!options.files.input.empty()) {
    Fulfil(options.files.input, ContainerRequests(options.files), &inputs);
  }
  for (const Operand operand : {Operand::kQ, Operand::kK, Operand::kV}) {
    if (inputs[operand]) continue;
    const std::string name = kOperands[static_cast<std::size_t>(operand)].name;
    throw InputError(options.files.input.empty()
                         ? name + ": missing; give --" + name + " or --input"
                         : Printable(options.files.input) + ": holds no tensor named '" +
                               Printable(options.files.prefix + name) + "'");
  }
  // kQ comes first, so that q_type is the converted type when bias is adapted.
  for (std::size_t i = 0; i < kNumOperands; ++i) {
    if (!inputs.tensors[i]) continue;
    Adapt(kOperands[i], options, inputs[Operand::kQ]->type, &*inputs.tensors[i]);
  }
  return inputs;
}

Inputs WidenInputs(const Inputs& inputs) {
  Inputs wide;
  wide.layout = inputs.layout;
  for (std::size_t i = 0; i < kNumOperands; ++i) {
    if (!inputs.tensors[i]) continue;
    const OperandKind kind = kOperands[i].kind;
    const bool is_widened = kind == OperandKind::kRows || kind == OperandKind::kScore;
    wide.tensors[i] =
        is_widened ? ConvertTensor(*inputs.tensors[i], ElementType::kF64) : *inputs.tensors[i];
  }
  return wide;
}

Inputs MakeInputs(const Options& options, Fill fill) {
  return options.files.any() ? LoadInputs(options) : DrawInputs(options, fill);
}

}  // namespace heed::tools
