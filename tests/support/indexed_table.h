// A dense table addressed by the logical index of a tensor.
#ifndef HEED_TESTS_SUPPORT_INDEXED_TABLE_H_
#define HEED_TESTS_SUPPORT_INDEXED_TABLE_H_

#include <cstddef>
#include <vector>

#include "support/indices.h"

namespace heed::test {

template <class T>
class IndexedTable {
 public:
  IndexedTable() = default;
  explicit IndexedTable(const Indices& shape) : strides_(CompactStrides(shape)) {
    std::int64_t num_items = 1;
    for (const std::int64_t extent : shape) num_items *= extent;
    items_.resize(static_cast<std::size_t>(num_items));
  }

  // Coordinates past the table's axes are ignored: a table of rows takes an element's index.
  T& operator[](const Indices& index) { return items_[Offset(index)]; }
  const T& operator[](const Indices& index) const { return items_[Offset(index)]; }

 private:
  std::size_t Offset(const Indices& index) const {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < strides_.count(); ++axis) {
      offset += index[axis] * strides_[axis];
    }
    return static_cast<std::size_t>(offset);
  }

  Indices strides_;
  std::vector<T> items_;
};

// A tensor's shape without its last axis.
inline Indices RowShape(const Indices& shape) {
  Indices rows = Indices::Repeated(shape.count() - 1, 0);
  for (std::size_t axis = 0; axis < rows.count(); ++axis) rows[axis] = shape[axis];
  return rows;
}

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_INDEXED_TABLE_H_
