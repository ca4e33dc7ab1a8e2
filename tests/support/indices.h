// A short list of integers (a shape, strides or an element's index) without heap memory.
#ifndef HEED_TESTS_SUPPORT_INDICES_H_
#define HEED_TESTS_SUPPORT_INDICES_H_

#include <array>
#include <cassert>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

namespace heed::test {

class Indices {
 public:
  static constexpr std::size_t kCapacity = 5;

  Indices() = default;
  Indices(std::initializer_list<std::int64_t> items) : count_(items.size()) {
    assert(count_ <= kCapacity);
    std::size_t at = 0;
    for (const std::int64_t item : items) items_[at++] = item;
  }
  static Indices Repeated(std::size_t count, std::int64_t item) {
    Indices result;
    assert(count <= kCapacity);
    result.count_ = count;
    for (std::size_t at = 0; at < count; ++at) result.items_[at] = item;
    return result;
  }

  std::size_t count() const { return count_; }
  std::int64_t* data() { return items_.data(); }
  std::int64_t& operator[](std::size_t at) { return items_[at]; }
  std::int64_t operator[](std::size_t at) const { return items_[at]; }
  const std::int64_t* begin() const { return items_.data(); }
  const std::int64_t* end() const { return items_.data() + count_; }

 private:
  std::array<std::int64_t, kCapacity> items_ = {};
  std::size_t count_ = 0;
};

Indices CompactStrides(const Indices& shape);
// "[1, 2, 3]".
std::string ToString(const Indices& indices);

// Calls body(index) for every index of `shape` in row-major order.
template <class Body>
void ForEachIndex(const Indices& shape, const Body& body) {
  for (const std::int64_t extent : shape) {
    if (extent == 0) return;
  }
  Indices index = Indices::Repeated(shape.count(), 0);
  while (true) {
    body(static_cast<const Indices&>(index));
    std::size_t axis = shape.count();
    while (axis > 0 && ++index[axis - 1] == shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_INDICES_H_
