// The text header of a .npy file: a Python dictionary literal.
#ifndef HEED_TOOLS_NPY_HEADER_H_
#define HEED_TOOLS_NPY_HEADER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor.h"

namespace heed::tools {

enum class AxisOrder : std::uint8_t { kRowMajor, kFortran };

struct NpyHeader {
  ElementType type = ElementType::kF32;
  AxisOrder order = AxisOrder::kRowMajor;
  std::vector<std::int64_t> shape;
};

// Accepts what NumPy writes: 'descr', 'fortran_order' and 'shape', each once, in any order.
// Throws InputError starting with `origin`.
NpyHeader ParseNpyHeader(std::string_view text, const std::string& origin);
std::string NpyHeaderText(const NpyHeader& header);

}  // namespace heed::tools

#endif  // HEED_TOOLS_NPY_HEADER_H_
