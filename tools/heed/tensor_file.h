// Reading and writing tensor files: .npy, .npz and .safetensors.
//
// Parsers take the whole file as bytes and trust nothing in it: they throw InputError for anything
// malformed, never read outside [bytes, bytes + num_bytes), and allocate no more than the bytes
// present justify (for deflated .npz members, at most deflate's own limit of about 1032 times).
// `origin` is the name that error messages start with.
#ifndef HEED_TOOLS_TENSOR_FILE_H_
#define HEED_TOOLS_TENSOR_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"
#include "tensor.h"

namespace heed::tools {

// Which tensors of a container to load; every tensor is validated either way.
using NameFilter = std::function<bool(std::string_view name)>;
bool KeepAll(std::string_view name);

// NumPy .npy, format versions 1 to 3, little-endian, C or Fortran order (returned row-major).
Tensor ParseNpy(const std::uint8_t* bytes, std::size_t num_bytes, const std::string& origin);

// NumPy .npz: a zip archive of .npy members, stored or deflated; names without ".npy".
std::vector<NamedTensor> ParseNpz(const std::uint8_t* bytes, std::size_t num_bytes,
                                  const std::string& origin, const NameFilter& keep = KeepAll);

// safetensors: 8-byte header length, JSON header, data without holes or overlaps.
std::vector<NamedTensor> ParseSafetensors(const std::uint8_t* bytes, std::size_t num_bytes,
                                          const std::string& origin,
                                          const NameFilter& keep = KeepAll);

// Whole files as bytes. NumPy has no bf16: such tensors must be converted first, else InputError.
Bytes SerializeNpy(const Tensor& tensor);
Bytes SerializeNpz(std::span<const NamedTensor> tensors);
Bytes SerializeSafetensors(std::span<const NamedTensor> tensors);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TENSOR_FILE_H_
