#include "core/overlap.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace heed::core {
namespace {

constexpr AxisNames kAxes = {3, {"a", "b", "c"}};

// A byte tensor in `arena`, so that offsets are addresses.
TensorInfo Place(std::vector<std::uint8_t>& arena, std::size_t first_byte,
                 std::array<std::int64_t, 3> shape, std::array<std::int64_t, 3> stride_elems) {
  heed_tensor_t tensor = {};
  tensor.data = arena.data() + first_byte;
  tensor.device = {HEED_DEVICE_CPU, 0};
  tensor.ndim = 3;
  tensor.dtype = DTypeToAbi(DType::kU8);
  tensor.shape = shape.data();
  tensor.strides = stride_elems.data();
  TensorInfo info;
  const Status status = ReadTensor("tensor", tensor, kAxes, Purpose::kRun, &info);
  EXPECT_TRUE(status.ok()) << status.message();
  return info;
}

std::set<const std::uint8_t*> Elements(const TensorInfo& info) {
  std::set<const std::uint8_t*> addresses;
  for (std::int64_t a = 0; a < info.shape[0]; ++a) {
    for (std::int64_t b = 0; b < info.shape[1]; ++b) {
      for (std::int64_t c = 0; c < info.shape[2]; ++c) {
        addresses.insert(static_cast<const std::uint8_t*>(info.data) + a * info.stride_elems[0] +
                         b * info.stride_elems[1] + c * info.stride_elems[2]);
      }
    }
  }
  return addresses;
}

bool ReallyOverlap(const TensorInfo& a, const TensorInfo& b) {
  const auto elements = Elements(a);
  for (const std::uint8_t* address : Elements(b)) {
    if (elements.count(address) > 0) return true;
  }
  return false;
}

TEST(Overlap, SeparateBlocks) {
  std::vector<std::uint8_t> arena(256);
  const TensorInfo a = Place(arena, 0, {2, 3, 4}, {12, 4, 1});
  EXPECT_FALSE(MayOverlap(a, Place(arena, 24, {2, 3, 4}, {12, 4, 1})));
  EXPECT_TRUE(MayOverlap(a, Place(arena, 23, {2, 3, 4}, {12, 4, 1})));
}

TEST(Overlap, InterleavedSlices) {
  std::vector<std::uint8_t> arena(256);
  const TensorInfo a = Place(arena, 0, {2, 3, 4}, {48, 16, 1});
  EXPECT_FALSE(MayOverlap(a, Place(arena, 4, {2, 3, 12}, {48, 16, 1})));
  EXPECT_FALSE(MayOverlap(a, Place(arena, 8, {2, 3, 4}, {48, 16, 1})));
  EXPECT_TRUE(MayOverlap(a, Place(arena, 3, {2, 3, 4}, {48, 16, 1})));
  // Wraps into the next row.
  EXPECT_TRUE(MayOverlap(a, Place(arena, 13, {2, 3, 4}, {48, 16, 1})));
}

TEST(Overlap, EmptyAndUnplacedTensorsShareNothing) {
  std::vector<std::uint8_t> arena(256);
  const TensorInfo a = Place(arena, 0, {2, 3, 4}, {12, 4, 1});
  EXPECT_FALSE(MayOverlap(a, Place(arena, 0, {2, 0, 4}, {12, 4, 1})));
  TensorInfo unplaced = a;
  unplaced.data = nullptr;
  EXPECT_FALSE(MayOverlap(a, unplaced));
}

// Never false for tensors that share an element, over every small placement; and true only where it
// must be for slices with equal strides.
TEST(Overlap, NeverMissesASharedElement) {
  std::vector<std::uint8_t> arena(512);
  const std::vector<std::array<std::int64_t, 3>> strides = {{24, 8, 1}, {24, 8, 2}, {20, 5, 1},
                                                            {0, 7, 1},  {8, 24, 1}, {1, 9, 3}};
  int shared = 0;
  for (const auto& a_stride : strides) {
    for (const auto& b_stride : strides) {
      for (std::size_t first_byte = 0; first_byte < 60; ++first_byte) {
        const TensorInfo a = Place(arena, 30, {2, 3, 3}, a_stride);
        const TensorInfo b = Place(arena, first_byte, {2, 2, 4}, b_stride);
        if (!ReallyOverlap(a, b)) continue;
        ++shared;
        EXPECT_TRUE(MayOverlap(a, b)) << "b at " << first_byte;
        EXPECT_TRUE(MayOverlap(b, a)) << "b at " << first_byte;
      }
    }
  }
  EXPECT_GT(shared, 500);
}

}  // namespace
}  // namespace heed::core
