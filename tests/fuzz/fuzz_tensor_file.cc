// libFuzzer target: every parser of tensor files on any bytes. A file is either refused with an
// InputError, or gives tensors whose shapes match their bytes and which survive a round trip.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "errors.h"
#include "tensor_file.h"

namespace {

using heed::tools::Bytes;
using heed::tools::NamedTensor;
using heed::tools::Tensor;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz_tensor_file: %s\n", what);
  std::abort();
}

bool SameTensor(const Tensor& a, const Tensor& b) {
  return a.type == b.type && a.shape == b.shape && a.bytes == b.bytes;
}

void CheckTensor(const Tensor& tensor) {
  const auto num_bytes = heed::tools::CompactBytes(tensor.type, tensor.shape);
  Check(num_bytes.has_value() && *num_bytes == tensor.bytes.size(), "shape and bytes differ");
}

void CheckNpy(const std::uint8_t* data, std::size_t num_bytes) {
  const Tensor tensor = heed::tools::ParseNpy(data, num_bytes, "npy");
  CheckTensor(tensor);
  const Bytes again = heed::tools::SerializeNpy(tensor);
  Check(SameTensor(tensor, heed::tools::ParseNpy(again.data(), again.size(), "again")),
        ".npy does not survive a round trip");
}

void CheckNpz(const std::uint8_t* data, std::size_t num_bytes) {
  for (const NamedTensor& named : heed::tools::ParseNpz(data, num_bytes, "npz")) {
    CheckTensor(named.tensor);
  }
}

void CheckSafetensors(const std::uint8_t* data, std::size_t num_bytes) {
  const std::vector<NamedTensor> tensors =
      heed::tools::ParseSafetensors(data, num_bytes, "safetensors");
  for (const NamedTensor& named : tensors) CheckTensor(named.tensor);
  const Bytes again = heed::tools::SerializeSafetensors(tensors);
  Check(heed::tools::ParseSafetensors(again.data(), again.size(), "again").size() == tensors.size(),
        ".safetensors does not survive a round trip");
}

template <class Parse>
void RefusesOrParses(Parse parse, const std::uint8_t* data, std::size_t num_bytes) {
  try {
    parse(data, num_bytes);
  } catch (const heed::tools::InputError& error) {
    Check(error.what()[0] != '\0', "refused without a reason");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  RefusesOrParses(CheckNpy, data, num_bytes);
  RefusesOrParses(CheckNpz, data, num_bytes);
  RefusesOrParses(CheckSafetensors, data, num_bytes);
  return 0;
}
