#include "support/sparse_tensor.h"

#include <sys/mman.h>

#include <new>

namespace heed::test {
namespace {

std::size_t SpanBytes(Element element, const Indices& shape, const Indices& strides) {
  std::int64_t last_elems = 0;
  for (std::size_t axis = 0; axis < shape.count(); ++axis) {
    last_elems += (shape[axis] - 1) * strides[axis];
  }
  return static_cast<std::size_t>(last_elems + 1) * ElementBytes(element);
}

}  // namespace

SparseTensor::SparseTensor(Element element, Indices shape, Indices strides)
    : element_(element),
      shape_(shape),
      strides_(strides),
      reserved_bytes_(SpanBytes(element, shape, strides)) {
  void* memory = mmap(nullptr, reserved_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(memory);
  abi_ = {};
  abi_.data = memory_;
  abi_.device = {HEED_DEVICE_CPU, 0};
  abi_.ndim = static_cast<std::int32_t>(shape_.count());
  abi_.dtype = ElementToAbi(element);
  abi_.shape = shape_.data();
  abi_.strides = strides_.data();
}

SparseTensor::~SparseTensor() { munmap(memory_, reserved_bytes_); }

std::byte* SparseTensor::Address(const Indices& index) const {
  std::int64_t offset_elems = 0;
  for (std::size_t axis = 0; axis < index.count(); ++axis) {
    offset_elems += index[axis] * strides_[axis];
  }
  return memory_ + offset_elems * static_cast<std::int64_t>(ElementBytes(element_));
}

}  // namespace heed::test
