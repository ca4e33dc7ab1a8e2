// Tensor files by path: the format is chosen by the file name's ending.
#ifndef HEED_TOOLS_TENSOR_STORE_H_
#define HEED_TOOLS_TENSOR_STORE_H_

#include <string>
#include <vector>

#include "tensor.h"
#include "tensor_file.h"

namespace heed::tools {

// "file.npy", "file.npz:name" or "file.safetensors:name"; name is empty when absent.
struct TensorPath {
  std::string file;
  std::string name;
};
TensorPath SplitTensorPath(const std::string& text);

// All tensors of a file that the filter keeps. A .npy file holds one tensor, named "".
std::vector<NamedTensor> LoadTensors(const std::string& file, const NameFilter& keep);

struct OutputTensor {
  std::string file;
  NamedTensor named;
};
// Throws InputError unless the ending is one that can be written.
void CheckOutputPath(const std::string& file);
// Tensors for the same file go into it together. Either every file is replaced, or (after an
// InputError, or when the process is interrupted) none that was not complete on disk.
// bf16 tensors become f32 in .npy and .npz, which have no such type.
void SaveTensors(std::vector<OutputTensor> outputs);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TENSOR_STORE_H_
