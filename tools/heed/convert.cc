#include "convert.h"

#include <bit>
#include <cmath>
#include <limits>

#include "errors.h"

namespace heed::tools {
namespace {

// A binary floating-point format narrower than double.
struct NarrowFormat {
  int mantissa_bits;  // stored bits
  int min_exponent;   // of the smallest normal number
  double overflow;    // magnitudes from here on round to infinity
};

constexpr NarrowFormat kHalf{10, -14, 65520.0};
// 2^128 - 2^119: halfway between the largest bf16 and the next step.
constexpr NarrowFormat kBfloat{7, -126, 3.3961775292304957e38};

// The nearest value of the format, ties to even, still as a double.
double RoundToFormat(double value, const NarrowFormat& format) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  if (std::fabs(value) >= format.overflow) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  const int unit_log2 = exponent - format.mantissa_bits;
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit_log2)), unit_log2);
}

std::uint16_t BfloatBits(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto rounded = static_cast<float>(RoundToFormat(value, kBfloat));
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) >> 16);
}

std::uint16_t HalfBits(double value) {
  const unsigned sign = std::signbit(value) ? 0x8000u : 0u;
  if (std::isnan(value)) return 0x7e00;
  const double rounded = std::fabs(RoundToFormat(value, kHalf));
  if (std::isinf(rounded)) return static_cast<std::uint16_t>(sign | 0x7c00u);
  constexpr int kUnitLog2 = -24;  // smallest subnormal
  if (rounded < 0x1p-14) {
    return static_cast<std::uint16_t>(sign |
                                      static_cast<unsigned>(std::ldexp(rounded, -kUnitLog2)));
  }
  const int exponent = std::ilogb(rounded);
  const auto mantissa = static_cast<unsigned>(std::ldexp(rounded, 10 - exponent)) & 0x3ffu;
  return static_cast<std::uint16_t>(sign | static_cast<unsigned>(exponent + 15) << 10 | mantissa);
}

double HalfValue(std::uint16_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  if (exponent == 0x1f) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

double BfloatValue(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace

double LoadElement(const Tensor& tensor, std::int64_t index) {
  switch (tensor.type) {
    case ElementType::kF64:
      return tensor.data<double>()[index];
    case ElementType::kF32:
      return tensor.data<float>()[index];
    case ElementType::kF16:
      return HalfValue(tensor.data<std::uint16_t>()[index]);
    case ElementType::kBF16:
      return BfloatValue(tensor.data<std::uint16_t>()[index]);
    case ElementType::kI64:
      return static_cast<double>(tensor.data<std::int64_t>()[index]);
    case ElementType::kI32:
      return tensor.data<std::int32_t>()[index];
    case ElementType::kI8:
      return tensor.data<std::int8_t>()[index];
    case ElementType::kU8:
    case ElementType::kBool:
      return tensor.data<std::uint8_t>()[index];
  }
  throw InputError("unknown element type");
}

void StoreElement(Tensor* tensor, std::int64_t index, double value) {
  switch (tensor->type) {
    case ElementType::kF64:
      tensor->data<double>()[index] = value;
      return;
    case ElementType::kF32:
      tensor->data<float>()[index] = static_cast<float>(value);
      return;
    case ElementType::kF16:
      tensor->data<std::uint16_t>()[index] = HalfBits(value);
      return;
    case ElementType::kBF16:
      tensor->data<std::uint16_t>()[index] = BfloatBits(value);
      return;
    default:
      throw InputError(std::string("cannot convert values to ") + ElementTypeName(tensor->type));
  }
}

Tensor ConvertTensor(const Tensor& tensor, ElementType type) {
  if (tensor.type == type) return tensor;
  Tensor out = MakeTensor(type, tensor.shape);
  const std::int64_t count = tensor.NumElements();
  for (std::int64_t i = 0; i < count; ++i) StoreElement(&out, i, LoadElement(tensor, i));
  return out;
}

Tensor ConvertToInt32(const Tensor& tensor, const std::string& name) {
  if (tensor.type != ElementType::kI64) return tensor;
  Tensor out = MakeTensor(ElementType::kI32, tensor.shape);
  const std::int64_t count = tensor.NumElements();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t value = tensor.data<std::int64_t>()[i];
    if (value != static_cast<std::int32_t>(value)) {
      throw InputError(name + "[" + std::to_string(i) + "] = " + std::to_string(value) +
                       ": must fit in int32");
    }
    out.data<std::int32_t>()[i] = static_cast<std::int32_t>(value);
  }
  return out;
}

}  // namespace heed::tools
