#include "reference/element.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "device/float16.h"

namespace heed::reference {
namespace {

using core::DType;

template <class T>
T At(const void* data, std::int64_t offset_elems) {
  return static_cast<const T*>(data)[offset_elems];
}

template <class T>
void Put(void* data, std::int64_t offset_elems, T value) {
  static_cast<T*>(data)[offset_elems] = value;
}

// The fp32 next to `value` towards zero, with its last bit set when it is not exact ("round to
// odd"). Rounding that to a format at least two bits narrower gives the same as rounding `value`
// once, which plain double -> fp32 -> fp16 does not.
float ToOddFp32(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  const bool is_beyond = std::abs(static_cast<double>(nearest)) > std::abs(value);
  const float towards_zero = is_beyond ? std::nextafter(nearest, 0.0f) : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(towards_zero) | 1u);
}

template <class Integer>
Integer ToInteger(double value) {
  using Limits = std::numeric_limits<Integer>;
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  if (rounded <= static_cast<double>(Limits::min())) return Limits::min();
  if (rounded >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<Integer>(rounded);
}

}  // namespace

double LoadElement(const void* data, DType dtype, std::int64_t offset_elems) {
  switch (dtype) {
    case DType::kF64:
      return At<double>(data, offset_elems);
    case DType::kF32:
      return At<float>(data, offset_elems);
    case DType::kF16:
      return device::Fp16ToFp32(At<std::uint16_t>(data, offset_elems));
    case DType::kBF16:
      return device::Bf16ToFp32(At<std::uint16_t>(data, offset_elems));
    case DType::kF8E4M3:
      return device::Fp8E4m3ToFp32(At<std::uint8_t>(data, offset_elems));
    case DType::kI8:
      return At<std::int8_t>(data, offset_elems);
    case DType::kU8:
      return At<std::uint8_t>(data, offset_elems);
    case DType::kBool:
      return At<std::uint8_t>(data, offset_elems) != 0 ? 1.0 : 0.0;
    case DType::kI32:
      return At<std::int32_t>(data, offset_elems);
    case DType::kI64:
      return static_cast<double>(At<std::int64_t>(data, offset_elems));
    case DType::kU64:
      return static_cast<double>(At<std::uint64_t>(data, offset_elems));
    case DType::kInvalid:
      break;
  }
  std::abort();  // unreachable: a built problem has valid dtypes
}

void StoreElement(void* data, DType dtype, std::int64_t offset_elems, double value) {
  switch (dtype) {
    case DType::kF64:
      return Put<double>(data, offset_elems, value);
    case DType::kF32:
      return Put<float>(data, offset_elems, static_cast<float>(value));
    case DType::kF16:
      return Put(data, offset_elems, device::Fp32ToFp16(ToOddFp32(value)));
    case DType::kBF16:
      return Put(data, offset_elems, device::Fp32ToBf16(ToOddFp32(value)));
    case DType::kF8E4M3:
      return Put(data, offset_elems, device::Fp32ToFp8E4m3(ToOddFp32(value)));
    case DType::kI8:
      return Put(data, offset_elems, ToInteger<std::int8_t>(value));
    case DType::kU8:
      return Put(data, offset_elems, ToInteger<std::uint8_t>(value));
    case DType::kBool:
      return Put<std::uint8_t>(data, offset_elems, value != 0.0 ? 1 : 0);
    case DType::kI32:
      return Put(data, offset_elems, ToInteger<std::int32_t>(value));
    case DType::kI64:
      return Put(data, offset_elems, ToInteger<std::int64_t>(value));
    case DType::kU64:
      return Put(data, offset_elems, ToInteger<std::uint64_t>(value));
    case DType::kInvalid:
      break;
  }
  std::abort();  // unreachable: a built problem has valid dtypes
}

}  // namespace heed::reference
