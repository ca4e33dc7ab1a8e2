// A tensor over reserved memory that is mostly never touched: for strides and offsets beyond 2^31
// without the memory they span.
#ifndef HEED_TESTS_SUPPORT_SPARSE_TENSOR_H_
#define HEED_TESTS_SUPPORT_SPARSE_TENSOR_H_

#include <cstddef>

#include "heed/heed.h"
#include "support/element.h"
#include "support/indices.h"

namespace heed::test {

class SparseTensor {
 public:
  // Strides in elements, not negative. Untouched elements read as 0.
  SparseTensor(Element element, Indices shape, Indices strides);
  ~SparseTensor();
  SparseTensor(const SparseTensor&) = delete;
  SparseTensor& operator=(const SparseTensor&) = delete;

  heed_tensor_t* abi() { return &abi_; }
  const Indices& shape() const { return shape_; }
  double At(const Indices& index) const { return LoadElement(element_, Address(index)); }
  void Set(const Indices& index, double value) { StoreElement(element_, Address(index), value); }
  template <class Value>
  void Fill(const Value& value) {
    ForEachIndex(shape_, [&](const Indices& index) { Set(index, value(index)); });
  }

 private:
  std::byte* Address(const Indices& index) const;

  Element element_;
  Indices shape_;
  Indices strides_;
  std::size_t reserved_bytes_;
  std::byte* memory_;
  heed_tensor_t abi_;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_SPARSE_TENSOR_H_
