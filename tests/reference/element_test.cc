#include "reference/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace heed::reference {
namespace {

using core::DType;

template <class Storage>
Storage Stored(DType dtype, double value) {
  Storage storage[2] = {};
  StoreElement(storage, dtype, 1, value);
  EXPECT_EQ(storage[0], Storage{}) << "wrote outside the element";
  return storage[1];
}

TEST(StoreElement, RoundsOnce) {
  // Just above the middle of 1 and the next number. Rounding to fp32 first lands on the middle,
  // and a second rounding then goes to the even neighbour, 1.
  EXPECT_EQ(Stored<std::uint16_t>(DType::kF16, 1 + 0x1p-11 + 0x1p-40), 0x3c01);
  EXPECT_EQ(Stored<std::uint16_t>(DType::kF16, -1 - 0x1p-11 - 0x1p-40), 0xbc01);
  EXPECT_EQ(Stored<std::uint16_t>(DType::kF16, 1 + 0x1p-11 - 0x1p-40), 0x3c00);
  EXPECT_EQ(Stored<std::uint16_t>(DType::kF16, 1 + 0x1p-11), 0x3c00);
  EXPECT_EQ(Stored<std::uint16_t>(DType::kBF16, 1 + 0x1p-8 + 0x1p-40), 0x3f81);
  EXPECT_EQ(Stored<std::uint16_t>(DType::kBF16, 1 + 0x1p-8), 0x3f80);
  EXPECT_EQ(Stored<std::uint8_t>(DType::kF8E4M3, 1 + 0x1p-4 + 0x1p-40), 0x39);
}

TEST(StoreElement, OverflowsToInfinity) {
  EXPECT_EQ(Stored<std::uint16_t>(DType::kF16, 1e300), 0x7c00);
  EXPECT_EQ(Stored<std::uint16_t>(DType::kF16, -1e300), 0xfc00);
  EXPECT_EQ(Stored<std::uint16_t>(DType::kF16, 65519.999), 0x7bff);
  EXPECT_EQ(Stored<std::uint16_t>(DType::kBF16, std::numeric_limits<double>::infinity()), 0x7f80);
  EXPECT_EQ(Stored<std::uint16_t>(DType::kF16, -0.0), 0x8000);
  EXPECT_EQ(Stored<std::uint16_t>(DType::kF16, 1e-300), 0x0000);
  EXPECT_TRUE(std::isinf(Stored<float>(DType::kF32, 1e300)));
  EXPECT_EQ(Stored<double>(DType::kF64, 1e300), 1e300);
}

TEST(StoreElement, IntegersSaturate) {
  EXPECT_EQ(Stored<std::int8_t>(DType::kI8, 200.0), 127);
  EXPECT_EQ(Stored<std::int8_t>(DType::kI8, -200.0), -128);
  EXPECT_EQ(Stored<std::int8_t>(DType::kI8, 2.5), 2);
  EXPECT_EQ(Stored<std::uint8_t>(DType::kU8, -1.0), 0);
  EXPECT_EQ(Stored<std::int32_t>(DType::kI32, 1e10), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(Stored<std::int64_t>(DType::kI64, 1e30), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(Stored<std::int64_t>(DType::kI64, std::nan("")), 0);
  EXPECT_EQ(Stored<std::uint8_t>(DType::kBool, 0.25), 1);
  EXPECT_EQ(Stored<std::uint8_t>(DType::kBool, 0.0), 0);
}

// Every dtype reads back a number that all of them hold.
TEST(Element, RoundTripsInEveryDtype) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                      DType::kI8, DType::kU8, DType::kI32, DType::kI64, DType::kU64}) {
    alignas(8) unsigned char storage[64] = {};
    StoreElement(storage, dtype, 3, 5.0);
    EXPECT_EQ(LoadElement(storage, dtype, 3), 5.0) << static_cast<int>(dtype);
    EXPECT_EQ(LoadElement(storage, dtype, 2), 0.0) << static_cast<int>(dtype);
  }
  const std::uint8_t truth = 0xff;
  EXPECT_EQ(LoadElement(&truth, DType::kBool, 0), 1.0);
}

}  // namespace
}  // namespace heed::reference
