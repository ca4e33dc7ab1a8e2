#include "core/dtype.h"

#include <gtest/gtest.h>

namespace heed::core {
namespace {

TEST(DType, AbiRoundTrip) {
  for (int value = 1; value <= static_cast<int>(DType::kU64); ++value) {
    const auto dtype = static_cast<DType>(value);
    const heed_dtype_t abi = DTypeToAbi(dtype);
    EXPECT_EQ(DTypeFromAbi(abi), dtype) << DTypeName(dtype);
    EXPECT_EQ(DTypeBytes(dtype) * 8, abi.bits) << DTypeName(dtype);
    EXPECT_EQ(abi.lanes, 1) << DTypeName(dtype);
  }
}

TEST(DType, UnknownCombinationsAreInvalid) {
  EXPECT_EQ(DTypeFromAbi({HEED_DTYPE_FLOAT, 32, 2}), DType::kInvalid);
  EXPECT_EQ(DTypeFromAbi({HEED_DTYPE_FLOAT, 8, 1}), DType::kInvalid);
  EXPECT_EQ(DTypeFromAbi({HEED_DTYPE_BFLOAT, 32, 1}), DType::kInvalid);
  EXPECT_EQ(DTypeFromAbi({HEED_DTYPE_INT, 16, 1}), DType::kInvalid);
}

TEST(DType, NamesAsInKernelIds) {
  EXPECT_STREQ(DTypeName(DType::kF32), "f32");
  EXPECT_STREQ(DTypeName(DType::kBF16), "bf16");
  EXPECT_STREQ(DTypeName(DType::kInvalid), "any");
}

}  // namespace
}  // namespace heed::core
