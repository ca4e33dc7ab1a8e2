#include "tensor.h"

#include <array>
#include <cstdint>
#include <limits>

#include "errors.h"

namespace heed::tools {
namespace {

struct TypeRow {
  const char* name;
  std::size_t bytes;
  bool is_floating;
};

// Indexed by ElementType.
constexpr std::array<TypeRow, 9> kTypes = {{{"f64", 8, true},
                                            {"f32", 4, true},
                                            {"f16", 2, true},
                                            {"bf16", 2, true},
                                            {"i64", 8, false},
                                            {"i32", 4, false},
                                            {"i8", 1, false},
                                            {"u8", 1, false},
                                            {"bool", 1, false}}};

const TypeRow& Row(ElementType type) { return kTypes[static_cast<std::size_t>(type)]; }

}  // namespace

const char* ElementTypeName(ElementType type) { return Row(type).name; }
std::size_t ElementBytes(ElementType type) { return Row(type).bytes; }
bool IsFloating(ElementType type) { return Row(type).is_floating; }

std::optional<ElementType> ElementTypeFromName(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (name == kTypes[i].name) return static_cast<ElementType>(i);
  }
  return std::nullopt;
}

std::optional<std::size_t> CompactBytes(ElementType type, std::span<const std::int64_t> shape) {
  // An empty tensor is empty whatever its other axes say, but negative axes stay an error.
  bool is_empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    is_empty = is_empty || extent == 0;
  }
  if (is_empty) return 0;
  std::int64_t product = static_cast<std::int64_t>(ElementBytes(type));
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  if (product > std::numeric_limits<std::ptrdiff_t>::max()) return std::nullopt;
  return static_cast<std::size_t>(product);
}

std::string ShapeText(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis != 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

std::string Printable(std::string_view text) {
  constexpr std::size_t kMaxChars = 100;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text.substr(0, kMaxChars)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  if (text.size() > kMaxChars) out += "...";
  return out;
}

Tensor MakeTensor(ElementType type, std::vector<std::int64_t> shape) {
  const auto num_bytes = CompactBytes(type, shape);
  if (!num_bytes) {
    throw InputError("shape " + ShapeText(shape) + " of " + ElementTypeName(type) +
                     ": extents must be >= 0 and the size in bytes must fit in 63 bits");
  }
  return Tensor{type, std::move(shape), Bytes(*num_bytes)};
}

}  // namespace heed::tools
