#include "support/strided_tensor.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace heed::test {
namespace {

std::size_t SpanElems(const Indices& shape, const Indices& strides) {
  std::int64_t last_elems = 0;
  for (std::size_t axis = 0; axis < shape.count(); ++axis) {
    if (shape[axis] == 0) return 0;
    if (shape[axis] > 1) last_elems += (shape[axis] - 1) * strides[axis];
  }
  return static_cast<std::size_t>(last_elems) + 1;
}

}  // namespace

Indices CompactStrides(const Indices& shape) {
  Indices strides = Indices::Repeated(shape.count(), 0);
  std::int64_t stride_elems = 1;
  for (std::size_t axis = shape.count(); axis-- > 0;) {
    strides[axis] = stride_elems;
    stride_elems *= std::max<std::int64_t>(shape[axis], 1);
  }
  return strides;
}

std::string ToString(const Indices& indices) {
  std::string text = "[";
  for (const std::int64_t item : indices) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(item);
  }
  return text + "]";
}

StridedTensor::StridedTensor(Element element, Indices shape, Indices strides, Placement placement,
                             Poison gap_poison)
    : element_(element),
      shape_(shape),
      strides_(strides),
      buffer_(SpanElems(shape_, strides_) * ElementBytes(element), placement) {
  PoisonAll(gap_poison);
  abi_ = {};
  abi_.data = buffer_.data();
  abi_.device = {HEED_DEVICE_CPU, 0};
  abi_.ndim = static_cast<std::int32_t>(shape_.count());
  abi_.dtype = ElementToAbi(element);
  abi_.shape = shape_.data();
  abi_.strides = strides_.data();
}

StridedTensor::StridedTensor(Element element, Indices shape)
    : StridedTensor(element, shape, CompactStrides(shape)) {}

std::int64_t StridedTensor::OffsetElems(const Indices& index) const {
  std::int64_t offset_elems = 0;
  for (std::size_t axis = 0; axis < index.count(); ++axis) {
    if (index[axis] != 0) offset_elems += index[axis] * strides_[axis];
  }
  return offset_elems;
}

void* StridedTensor::ElementAddress(const Indices& index) const {
  return buffer_.data() + OffsetElems(index) * static_cast<std::int64_t>(ElementBytes(element_));
}

double StridedTensor::At(const Indices& index) const {
  return LoadElement(element_, ElementAddress(index));
}

void StridedTensor::Set(const Indices& index, double value) {
  StoreElement(element_, ElementAddress(index), value);
}

void StridedTensor::SetPoison(const Indices& index, Poison poison) {
  StorePoison(element_, ElementAddress(index), poison);
}

void StridedTensor::PoisonAll(Poison poison) {
  const std::size_t step_bytes = ElementBytes(element_);
  for (std::size_t at = 0; at < buffer_.payload_bytes(); at += step_bytes) {
    StorePoison(element_, buffer_.data() + at, poison);
  }
}

void StridedTensor::Fill(const std::function<double(const Indices&)>& value) {
  ForEachIndex(shape_, [&](const Indices& index) { Set(index, value(index)); });
}

std::string StridedTensor::DescribeStrayWrite(
    const std::function<bool(const Indices&)>& may_write) const {
  std::vector<std::uint8_t> writable(buffer_.payload_bytes(), 0);
  const std::size_t width_bytes = ElementBytes(element_);
  ForEachIndex(shape_, [&](const Indices& index) {
    if (!may_write(index)) return;
    const std::size_t begin = static_cast<std::size_t>(OffsetElems(index)) * width_bytes;
    std::fill_n(writable.begin() + static_cast<std::ptrdiff_t>(begin), width_bytes, 1);
  });
  const auto stray = buffer_.FirstStrayWrite(writable);
  return stray ? DescribeDamageAt(*stray) : std::string();
}

std::string StridedTensor::DescribeAnyWrite() const {
  const auto stray = buffer_.FirstStrayWrite({});
  return stray ? DescribeDamageAt(*stray) : std::string();
}

std::string StridedTensor::DescribeDamageAt(std::int64_t byte) const {
  const auto payload_bytes = static_cast<std::int64_t>(buffer_.payload_bytes());
  const char* where = byte < 0                ? "before the tensor"
                      : byte >= payload_bytes ? "past the tensor's end"
                                              : "inside the tensor's memory";
  return "byte " + std::to_string(byte) + " changed (" + where + " of " +
         std::to_string(payload_bytes) + " bytes)";
}

}  // namespace heed::test
