#include "support/element.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace heed::test {
namespace {

struct FloatFormat {
  int mantissa_bits;  // stored, without the leading one
  int min_exponent;   // of normal numbers
  double max_finite;
};
constexpr FloatFormat kHalf{10, -14, 65504.0};
constexpr FloatFormat kBfloat{7, -126, 0x1.fep127};

double RoundToFormat(const FloatFormat& format, double value) {
  if (!std::isfinite(value) || value == 0.0) return value;
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  const double ulp = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double rounded = std::nearbyint(value / ulp) * ulp;
  if (std::fabs(rounded) <= format.max_finite) return std::copysign(rounded, value);
  return std::copysign(std::numeric_limits<double>::infinity(), value);
}

std::uint16_t EncodeHalf(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000u : 0u;
  if (std::isnan(value)) return sign | 0x7e00u;
  const double magnitude = std::fabs(RoundToFormat(kHalf, value));
  if (std::isinf(magnitude)) return sign | 0x7c00u;
  if (magnitude < 0x1p-14) return sign | static_cast<std::uint16_t>(magnitude * 0x1p24);
  const int exponent = std::ilogb(magnitude);
  const auto fraction = static_cast<std::uint16_t>((std::ldexp(magnitude, -exponent) - 1.0) * 1024);
  return sign | static_cast<std::uint16_t>((exponent + 15) << 10) | fraction;
}

double DecodeHalf(std::uint16_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * fraction * 0x1p-24;
  return sign * std::ldexp(1.0 + fraction / 1024.0, exponent - 15);
}

std::uint16_t EncodeBfloat(double value) {
  if (std::isnan(value)) return 0x7fc0u;
  const auto rounded = static_cast<float>(RoundToFormat(kBfloat, value));
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) >> 16);
}

double DecodeBfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

template <class T>
T Read(const void* source) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

template <class T>
void Write(void* target, T value) {
  std::memcpy(target, &value, sizeof value);
}

}  // namespace

std::size_t ElementBytes(Element element) {
  switch (element) {
    case Element::kF64:
      return 8;
    case Element::kF32:
      return 4;
    case Element::kI32:
      return 4;
    case Element::kF16:
      return 2;
    case Element::kBF16:
      return 2;
    case Element::kU8:
      return 1;
    case Element::kBool:
      return 1;
  }
  std::abort();
}

heed_dtype_t ElementToAbi(Element element) {
  const auto bits = static_cast<std::uint8_t>(8 * ElementBytes(element));
  switch (element) {
    case Element::kF64:
    case Element::kF32:
    case Element::kF16:
      return {HEED_DTYPE_FLOAT, bits, 1};
    case Element::kBF16:
      return {HEED_DTYPE_BFLOAT, bits, 1};
    case Element::kU8:
      return {HEED_DTYPE_UINT, bits, 1};
    case Element::kBool:
      return {HEED_DTYPE_BOOL, bits, 1};
    case Element::kI32:
      return {HEED_DTYPE_INT, bits, 1};
  }
  std::abort();
}

const char* ElementName(Element element) {
  switch (element) {
    case Element::kF64:
      return "f64";
    case Element::kF32:
      return "f32";
    case Element::kF16:
      return "f16";
    case Element::kBF16:
      return "bf16";
    case Element::kU8:
      return "u8";
    case Element::kBool:
      return "bool";
    case Element::kI32:
      return "i32";
  }
  std::abort();
}

double LoadElement(Element element, const void* source) {
  switch (element) {
    case Element::kF64:
      return Read<double>(source);
    case Element::kF32:
      return Read<float>(source);
    case Element::kF16:
      return DecodeHalf(Read<std::uint16_t>(source));
    case Element::kBF16:
      return DecodeBfloat(Read<std::uint16_t>(source));
    case Element::kU8:
    case Element::kBool:
      return Read<std::uint8_t>(source);
    case Element::kI32:
      return Read<std::int32_t>(source);
  }
  std::abort();
}

void StoreElement(Element element, void* target, double value) {
  switch (element) {
    case Element::kF64:
      return Write(target, value);
    case Element::kF32:
      return Write(target, static_cast<float>(value));
    case Element::kF16:
      return Write(target, EncodeHalf(value));
    case Element::kBF16:
      return Write(target, EncodeBfloat(value));
    case Element::kU8:
    case Element::kBool:
      return Write(target, static_cast<std::uint8_t>(value));
    case Element::kI32:
      return Write(target, static_cast<std::int32_t>(value));
  }
  std::abort();
}

double RoundToElement(Element element, double value) {
  std::byte storage[8];
  StoreElement(element, storage, value);
  return LoadElement(element, storage);
}

void StorePoison(Element element, void* target, Poison poison) {
  if (poison == Poison::kNaN) {
    std::memset(target, 0xff, ElementBytes(element));
    return;
  }
  const bool negative = poison == Poison::kNegativeInfinity;
  switch (element) {
    case Element::kU8:
      return Write<std::uint8_t>(target, negative ? 0 : 255);
    case Element::kBool:
      return Write<std::uint8_t>(target, negative ? 0 : 1);
    case Element::kI32:
      return Write(target, negative ? std::numeric_limits<std::int32_t>::min()
                                    : std::numeric_limits<std::int32_t>::max());
    default:
      break;
  }
  if (poison != Poison::kSignallingNaN)
    return StoreElement(element, target, negative ? -HUGE_VAL : HUGE_VAL);
  switch (element) {
    case Element::kF64:
      return Write<std::uint64_t>(target, 0x7ff0000000000001u);
    case Element::kF32:
      return Write<std::uint32_t>(target, 0x7f800001u);
    case Element::kF16:
      return Write<std::uint16_t>(target, 0x7c01u);
    default:
      return Write<std::uint16_t>(target, 0x7f81u);
  }
}

}  // namespace heed::test
