#include "fuzz_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace heed::fuzz {
namespace {

constexpr std::uint8_t kFillByte = 0xff;  // NaN in every floating type
constexpr std::size_t kGuardBytes = 128;
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMinInt64 = std::numeric_limits<std::int64_t>::min();
// Bounds the work of a call whose (corrupted) shape still fits the memory thanks to 0-strides.
constexpr __int128 kMaxElements = 1 << 14;

std::uint16_t Float16Bits(int eighths) {
  // eighths / 8 for |eighths| <= 16: exact in fp16.
  if (eighths == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(eighths) / 8.0, &exponent);  // in [0.5, 1)
  const auto mantissa = static_cast<unsigned>((fraction * 2.0 - 1.0) * 1024.0);
  return static_cast<std::uint16_t>((eighths < 0 ? 0x8000u : 0u) |
                                    (static_cast<unsigned>(exponent - 1 + 15) << 10) | mantissa);
}

float FloatFromBits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

float FloatFromHalf(std::uint16_t bits) {
  const unsigned exponent = (bits >> 10) & 31u, mantissa = bits & 1023u;
  float magnitude = std::ldexp(static_cast<float>(mantissa | (exponent ? 1024u : 0u)),
                               static_cast<int>(std::max(exponent, 1u)) - 25);
  if (exponent == 31) {
    magnitude =
        mantissa ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  }
  return bits & 0x8000u ? -magnitude : magnitude;
}

}  // namespace

void FuzzTensor::Make(heed_dtype_t dtype, std::initializer_list<std::int64_t> shape,
                      ByteSource* source) {
  made_ = true;
  std::copy(shape.begin(), shape.end(), shape_);
  tensor_.device = {HEED_DEVICE_CPU, 0};
  tensor_.ndim = static_cast<std::int32_t>(shape.size());
  tensor_.dtype = dtype;
  tensor_.shape = shape_;
  // Rows may stand apart by whole elements; the last axis stays contiguous.
  const std::int64_t gap_elems = shape.size() > 1 ? source->Pick<std::int64_t>({0, 0, 3}) : 0;
  std::int64_t next_elems = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides_[axis] = next_elems;
    next_elems = next_elems * std::max<std::int64_t>(shape_[axis], 1);
    if (axis + 1 == shape.size()) next_elems += gap_elems;
  }
  tensor_.strides = gap_elems == 0 && source->OneIn(2) ? nullptr : strides_;
  payload_bytes_ = static_cast<std::size_t>(next_elems) * ElementBytes();
  memory_.assign(payload_bytes_ + 2 * kGuardBytes, kFillByte);
  tensor_.data = memory_.data() + kGuardBytes;
}

void FuzzTensor::FillValues(ByteSource* source) {
  unsigned state = 1u + source->Byte();
  VisitElements([&](std::size_t at) {
    state = state * 1664525u + 1013904223u;
    const int eighths = static_cast<int>(state >> 24) % 33 - 16;
    std::uint8_t* bytes = memory_.data() + at;
    const float value = static_cast<float>(eighths) / 8.0f;
    if (tensor_.dtype.bits == 8) {
      bytes[0] = static_cast<std::uint8_t>(eighths > 0);
    } else if (tensor_.dtype.code == HEED_DTYPE_FLOAT && tensor_.dtype.bits == 16) {
      const std::uint16_t half = Float16Bits(eighths);
      std::memcpy(bytes, &half, sizeof half);
    } else if (tensor_.dtype.code == HEED_DTYPE_BFLOAT) {
      // bf16 is the upper half of fp32; little-endian hosts keep it in the last two bytes.
      std::memcpy(bytes, reinterpret_cast<const std::uint8_t*>(&value) + 2, 2);
    } else {
      std::memcpy(bytes, &value, sizeof value);
    }
  });
}

void FuzzTensor::FillIndices(std::initializer_list<std::int32_t> values) {
  std::size_t index = 0;
  for (const std::int32_t value : values) SetIndex(index++, value);
}

void FuzzTensor::SetIndex(std::size_t index, std::int32_t value) {
  if (index >= NumIndices()) return;
  std::memcpy(memory_.data() + kGuardBytes + index * sizeof value, &value, sizeof value);
}

void FuzzTensor::Broadcast(std::size_t axis) {
  strides_[axis] = 0;
  tensor_.strides = strides_;
}

void FuzzTensor::Corrupt(ByteSource* source) {
  const auto axis = static_cast<std::size_t>(source->Between(0, kMaxAxes - 1));
  const auto extreme = [&] {
    return source->Pick<std::int64_t>({-1, 0, 1, 2, 3, 5, std::int64_t{1} << 31,
                                       std::int64_t{1} << 32, std::int64_t{1} << 62, kMaxInt64,
                                       kMinInt64});
  };
  switch (source->Between(0, 9)) {
    case 0:
      shape_[axis] = extreme();
      break;
    case 1:
      strides_[axis] = extreme();
      tensor_.strides = strides_;
      break;
    case 2:
      tensor_.ndim = source->Pick<std::int32_t>({-1, 0, 1, 2, 3, 4, 5, 0x7fffffff});
      break;
    case 3:
      tensor_.dtype.code = source->Byte();
      break;
    case 4:
      tensor_.dtype.bits = source->Pick<std::uint8_t>({0, 1, 8, 16, 32, 64, 255});
      break;
    case 5:
      tensor_.dtype.lanes = source->Pick<std::uint16_t>({0, 2, 65535});
      break;
    case 6:
      tensor_.device = {source->Pick({0, 1, 2, 3, 13, 15, -1, 99}), source->Pick({0, 1, -1})};
      break;
    case 7:
      tensor_.data = nullptr;
      break;
    case 8:
      tensor_.byte_offset = source->Pick<std::uint64_t>(
          {1, 2, 4, 8, std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max()});
      break;
    default:
      tensor_.shape = nullptr;
      break;
  }
}

std::int64_t FuzzTensor::StrideElems(std::size_t axis) const {
  if (tensor_.strides != nullptr) return tensor_.strides[axis];
  std::int64_t stride_elems = 1;
  for (std::size_t inner = axis + 1; inner < static_cast<std::size_t>(tensor_.ndim); ++inner) {
    stride_elems *= shape_[inner];  // FitsMemory() has bounded the product
  }
  return stride_elems;
}

bool FuzzTensor::FitsMemory() const {
  if (!made_) return true;
  const bool is_named = tensor_.data != nullptr && tensor_.shape != nullptr;
  if (!is_named || tensor_.ndim < 0 || tensor_.ndim > static_cast<int>(kMaxAxes)) {
    return tensor_.data == nullptr;
  }
  __int128 low = tensor_.byte_offset, high = low, num_elements = 1;
  __int128 compact_elems = 1;
  for (std::size_t axis = static_cast<std::size_t>(tensor_.ndim); axis-- > 0;) {
    if (shape_[axis] < 0 || shape_[axis] > kMaxElements) return false;
    const __int128 stride_elems = tensor_.strides != nullptr ? strides_[axis] : compact_elems;
    const __int128 reach = stride_elems * static_cast<__int128>(ElementBytes()) *
                           std::max<std::int64_t>(shape_[axis] - 1, 0);
    (reach < 0 ? low : high) += reach;
    num_elements *= shape_[axis];
    compact_elems *= std::max<std::int64_t>(shape_[axis], 1);
    if (num_elements > kMaxElements || compact_elems > kMaxElements) return false;
  }
  if (num_elements == 0) return true;
  return low >= 0 && high + static_cast<__int128>(ElementBytes()) <= payload_bytes_;
}

template <class Visit>
void FuzzTensor::VisitElements(Visit visit) const {
  const auto num_axes = static_cast<std::size_t>(tensor_.ndim);
  for (std::size_t axis = 0; axis < num_axes; ++axis) {
    if (shape_[axis] <= 0) return;
  }
  std::int64_t index[kMaxAxes] = {};
  while (true) {
    std::int64_t offset_elems = 0;
    for (std::size_t axis = 0; axis < num_axes; ++axis) {
      offset_elems += index[axis] * StrideElems(axis);
    }
    visit(kGuardBytes + static_cast<std::size_t>(tensor_.byte_offset) +
          static_cast<std::size_t>(offset_elems) * ElementBytes());
    std::size_t axis = num_axes;
    while (axis > 0 && ++index[axis - 1] == shape_[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

bool FuzzTensor::OnlyElementsChanged() const {
  if (!made_ || tensor_.data == nullptr) return true;
  std::vector<std::uint8_t> expected = remembered_;
  VisitElements([&](std::size_t at) {
    std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(at), ElementBytes(),
                expected.begin() + static_cast<std::ptrdiff_t>(at));
  });
  return memory_ == expected;
}

std::vector<float> FuzzTensor::Values() const {
  std::vector<float> values;
  VisitElements([&](std::size_t at) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, memory_.data() + at, ElementBytes());
    if (tensor_.dtype.bits == 32) {
      values.push_back(FloatFromBits(bits));
    } else if (tensor_.dtype.code == HEED_DTYPE_BFLOAT) {
      values.push_back(FloatFromBits(bits << 16));
    } else {
      values.push_back(FloatFromHalf(static_cast<std::uint16_t>(bits)));
    }
  });
  return values;
}

}  // namespace heed::fuzz
