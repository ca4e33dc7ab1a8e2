#include <algorithm>
#include <cstring>

#include "byte_reader.h"
#include "byte_writer.h"
#include "npy_header.h"
#include "tensor_file.h"

namespace heed::tools {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kVersionPosition = 6;
constexpr std::size_t kLengthPosition = 8;
// NumPy aligns the data of every file to this.
constexpr std::size_t kDataAlignment = 64;

// Element `linear` of the row-major order is at the returned element of the Fortran order.
std::int64_t FortranIndex(std::int64_t linear, const std::vector<std::int64_t>& shape) {
  std::int64_t step = 1;
  for (const std::int64_t extent : shape) step *= extent;
  std::int64_t index = 0;
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) {
    step /= *extent;
    index += linear % *extent * step;
    linear /= *extent;
  }
  return index;
}

void CopyFromFortran(const std::uint8_t* source, Tensor* tensor) {
  const std::size_t element_bytes = ElementBytes(tensor->type);
  const std::int64_t count = tensor->NumElements();
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(tensor->bytes.data() + i * element_bytes,
                source + FortranIndex(i, tensor->shape) * element_bytes, element_bytes);
  }
}

}  // namespace

Tensor ParseNpy(const std::uint8_t* bytes, std::size_t num_bytes, const std::string& origin) {
  const ByteReader reader(bytes, num_bytes, origin);
  if (reader.Text(0, kMagic.size(), "magic") != kMagic) {
    reader.Fail("magic", "not a .npy file (must start with \\x93NUMPY)");
  }
  const std::uint64_t version = reader.Unsigned(kVersionPosition, 1, "version");
  if (version < 1 || version > 3) {
    reader.Fail("version = " + std::to_string(version), "must be 1, 2 or 3");
  }
  const int length_bytes = version == 1 ? 2 : 4;
  const std::uint64_t header_bytes =
      reader.Unsigned(kLengthPosition, length_bytes, "header length");
  const std::uint64_t header_position = kLengthPosition + length_bytes;
  NpyHeader header =
      ParseNpyHeader(reader.Text(header_position, header_bytes, "header length"), origin);

  const auto data_bytes = CompactBytes(header.type, header.shape);
  const std::size_t present_bytes = num_bytes - header_position - header_bytes;
  if (!data_bytes || *data_bytes != present_bytes) {
    reader.Fail("shape = " + ShapeText(header.shape) + " of " + ElementTypeName(header.type),
                data_bytes ? "needs " + std::to_string(*data_bytes) + " bytes of data, but " +
                                 std::to_string(present_bytes) + " follow the header"
                           : "is too large to be true");
  }
  Tensor tensor = MakeTensor(header.type, std::move(header.shape));
  const std::uint8_t* data = bytes + header_position + header_bytes;
  if (header.order == AxisOrder::kFortran && tensor.shape.size() > 1) {
    CopyFromFortran(data, &tensor);
  } else {
    std::copy_n(data, present_bytes, tensor.bytes.data());
  }
  return tensor;
}

Bytes SerializeNpy(const Tensor& tensor) {
  std::string header = NpyHeaderText({tensor.type, AxisOrder::kRowMajor, tensor.shape});
  // Version 1: magic, two version bytes, two length bytes, the header ending in a newline.
  const std::size_t prefix_bytes = kLengthPosition + 2;
  while ((prefix_bytes + header.size() + 1) % kDataAlignment != 0) header += ' ';
  header += '\n';

  ByteWriter out(prefix_bytes + header.size() + tensor.bytes.size());
  out.Text(kMagic);
  out.Unsigned(1, 1);
  out.Unsigned(0, 1);
  out.Unsigned(header.size(), 2);
  out.Text(header);
  out.Raw(tensor.bytes);
  return out.Take();
}

}  // namespace heed::tools
