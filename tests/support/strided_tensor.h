// A test tensor with any strides in guarded memory. Memory between its elements is poisoned, so a
// kernel that reads or writes a gap is found.
#ifndef HEED_TESTS_SUPPORT_STRIDED_TENSOR_H_
#define HEED_TESTS_SUPPORT_STRIDED_TENSOR_H_

#include <cstdint>
#include <functional>
#include <string>

#include "heed/heed.h"
#include "support/element.h"
#include "support/guarded_buffer.h"
#include "support/indices.h"

namespace heed::test {

class StridedTensor {
 public:
  // Strides are in elements, not negative; 0 repeats.
  StridedTensor(Element element, Indices shape, Indices strides,
                Placement placement = Placement::kGuardBands, Poison gap_poison = Poison::kNaN);
  // Compact.
  StridedTensor(Element element, Indices shape);
  // The ABI struct points into the object.
  StridedTensor(const StridedTensor&) = delete;
  StridedTensor& operator=(const StridedTensor&) = delete;

  heed_tensor_t* abi() { return &abi_; }
  Element element() const { return element_; }
  const Indices& shape() const { return shape_; }
  const Indices& strides() const { return strides_; }
  std::int64_t dim(int axis) const { return shape_[static_cast<std::size_t>(axis)]; }

  double At(const Indices& index) const;
  void Set(const Indices& index, double value);
  void SetPoison(const Indices& index, Poison poison);
  void* ElementAddress(const Indices& index) const;
  // Every byte of the payload, elements and gaps.
  void PoisonAll(Poison poison);
  void Fill(const std::function<double(const Indices&)>& value);

  void TakeSnapshot() { buffer_.TakeSnapshot(); }
  // Empty when no byte changed since the snapshot except elements for which `may_write` is true;
  // else says where.
  std::string DescribeStrayWrite(const std::function<bool(const Indices&)>& may_write) const;
  std::string DescribeAnyWrite() const;

 private:
  std::int64_t OffsetElems(const Indices& index) const;
  std::string DescribeDamageAt(std::int64_t byte) const;

  Element element_;
  Indices shape_;
  Indices strides_;
  GuardedBuffer buffer_;
  heed_tensor_t abi_;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_STRIDED_TENSOR_H_
