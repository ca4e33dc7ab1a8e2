#include "tensor_store.h"

#include <map>
#include <memory>

#include "convert.h"
#include "errors.h"
#include "os.h"

namespace heed::tools {
namespace {

enum class FileFormat { kNpy, kNpz, kSafetensors };

FileFormat FormatOf(const std::string& file) {
  if (file.ends_with(".npy")) return FileFormat::kNpy;
  if (file.ends_with(".npz")) return FileFormat::kNpz;
  if (file.ends_with(".safetensors")) return FileFormat::kSafetensors;
  throw InputError(Printable(file) + ": the name must end in .npy, .npz or .safetensors");
}

Bytes Serialize(const std::string& file, std::vector<NamedTensor> tensors) {
  const FileFormat format = FormatOf(file);
  if (format == FileFormat::kSafetensors) return SerializeSafetensors(tensors);
  for (NamedTensor& named : tensors) {
    if (named.tensor.type == ElementType::kBF16) {
      named.tensor = ConvertTensor(named.tensor, ElementType::kF32);
    }
  }
  if (format == FileFormat::kNpz) return SerializeNpz(tensors);
  if (tensors.size() != 1) {
    throw InputError(Printable(file) + ": a .npy file holds one tensor; use .npz or .safetensors");
  }
  return SerializeNpy(tensors[0].tensor);
}

}  // namespace

TensorPath SplitTensorPath(const std::string& text) {
  for (const char* ending : {".npz:", ".safetensors:"}) {
    const std::size_t found = text.find(ending);
    if (found == std::string::npos) continue;
    const std::size_t colon = found + std::string(ending).size() - 1;
    return {text.substr(0, colon), text.substr(colon + 1)};
  }
  return {text, ""};
}

std::vector<NamedTensor> LoadTensors(const std::string& file, const NameFilter& keep) {
  const FileFormat format = FormatOf(file);
  const os::MappedFile content(file);
  const std::string origin = Printable(file);
  if (format == FileFormat::kNpz) {
    return ParseNpz(content.bytes(), content.num_bytes(), origin, keep);
  }
  if (format == FileFormat::kSafetensors) {
    return ParseSafetensors(content.bytes(), content.num_bytes(), origin, keep);
  }
  std::vector<NamedTensor> tensors;
  if (keep("")) tensors.push_back({"", ParseNpy(content.bytes(), content.num_bytes(), origin)});
  return tensors;
}

void CheckOutputPath(const std::string& file) { FormatOf(file); }

void SaveTensors(std::vector<OutputTensor> outputs) {
  std::map<std::string, std::vector<NamedTensor>> by_file;
  for (OutputTensor& output : outputs) by_file[output.file].push_back(std::move(output.named));

  std::vector<std::unique_ptr<os::AtomicFile>> files;
  for (auto& [path, tensors] : by_file) {
    const Bytes content = Serialize(path, std::move(tensors));
    files.push_back(std::make_unique<os::AtomicFile>(path));
    files.back()->Write(content.data(), content.size());
    files.back()->Close();
  }
  for (const auto& file : files) file->Commit();
}

}  // namespace heed::tools
