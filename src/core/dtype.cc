#include "core/dtype.h"

#include <array>

namespace heed::core {
namespace {

struct DTypeRow {
  DType dtype;
  const char* name;
  std::uint8_t code;
  std::uint8_t bits;
};

constexpr std::array<DTypeRow, 11> kDTypes = {{
    {DType::kF64, "f64", HEED_DTYPE_FLOAT, 64},
    {DType::kF32, "f32", HEED_DTYPE_FLOAT, 32},
    {DType::kF16, "f16", HEED_DTYPE_FLOAT, 16},
    {DType::kBF16, "bf16", HEED_DTYPE_BFLOAT, 16},
    {DType::kF8E4M3, "f8e4m3", HEED_DTYPE_FLOAT8_E4M3FN, 8},
    {DType::kI8, "i8", HEED_DTYPE_INT, 8},
    {DType::kU8, "u8", HEED_DTYPE_UINT, 8},
    {DType::kBool, "bool", HEED_DTYPE_BOOL, 8},
    {DType::kI32, "i32", HEED_DTYPE_INT, 32},
    {DType::kI64, "i64", HEED_DTYPE_INT, 64},
    {DType::kU64, "u64", HEED_DTYPE_UINT, 64},
}};

// The list stands in the order of DType, which begins with kInvalid.
const DTypeRow* FindRow(DType dtype) {
  return dtype == DType::kInvalid ? nullptr : &kDTypes[static_cast<std::size_t>(dtype) - 1];
}

constexpr bool IsInOrder() {
  for (std::size_t at = 0; at < kDTypes.size(); ++at) {
    if (static_cast<std::size_t>(kDTypes[at].dtype) != at + 1) return false;
  }
  return true;
}
static_assert(IsInOrder());

}  // namespace

DType DTypeFromAbi(heed_dtype_t dtype) {
  if (dtype.lanes != 1) return DType::kInvalid;
  for (const DTypeRow& row : kDTypes) {
    if (row.code == dtype.code && row.bits == dtype.bits) return row.dtype;
  }
  return DType::kInvalid;
}

heed_dtype_t DTypeToAbi(DType dtype) {
  const DTypeRow* row = FindRow(dtype);
  if (row == nullptr) return {0, 0, 0};
  return {row->code, row->bits, 1};
}

const char* DTypeName(DType dtype) {
  const DTypeRow* row = FindRow(dtype);
  return row == nullptr ? "any" : row->name;
}

std::size_t DTypeBytes(DType dtype) {
  const DTypeRow* row = FindRow(dtype);
  return row == nullptr ? 0 : row->bits / 8u;
}

}  // namespace heed::core
