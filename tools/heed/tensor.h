// A tensor in host memory: element type, shape and compact row-major bytes.
#ifndef HEED_TOOLS_TENSOR_H_
#define HEED_TOOLS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::tools {

enum class ElementType : std::uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI8, kU8, kBool };

const char* ElementTypeName(ElementType type);  // "f32", "bf16", "bool", ...
std::optional<ElementType> ElementTypeFromName(std::string_view name);
std::size_t ElementBytes(ElementType type);
bool IsFloating(ElementType type);

// Bytes of a compact tensor; empty when an axis is negative or the product overflows ptrdiff_t.
std::optional<std::size_t> CompactBytes(ElementType type, std::span<const std::int64_t> shape);
// "[2, 128, 8, 64]"
std::string ShapeText(std::span<const std::int64_t> shape);
// Text fit for one line of a terminal: control bytes escaped, long texts cut.
std::string Printable(std::string_view text);

// Cache-line aligned, so that whole SIMD vectors never straddle two lines.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};

  AlignedAllocator() = default;
  template <class U>
  explicit AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* block, std::size_t) { ::operator delete(block, kAlignment); }
  bool operator==(const AlignedAllocator&) const = default;
};

using Bytes = std::vector<std::uint8_t, AlignedAllocator<std::uint8_t>>;

struct Tensor {
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;
  Bytes bytes;

  std::int64_t NumElements() const {
    return static_cast<std::int64_t>(bytes.size() / ElementBytes(type));
  }
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Zero-filled. Requires: CompactBytes(type, shape) has a value, else throws InputError.
Tensor MakeTensor(ElementType type, std::vector<std::int64_t> shape);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TENSOR_H_
