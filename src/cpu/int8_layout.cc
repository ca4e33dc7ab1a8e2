#include "cpu/int8_layout.h"

#include <algorithm>

#include "cpu/int8_pack.h"

namespace heed::cpu {
namespace {

constexpr std::size_t kAlignBytes = 64;

std::size_t Align(std::size_t bytes) {
  return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

// An odd number of cache lines: the product walks down a column of values, and lines a power of two
// apart would evict each other.
std::int64_t SpreadOverCacheSets(std::int64_t num_words) {
  constexpr std::int64_t kLineWords = 16;
  return (CeilDiv(num_words, kLineWords) | 1) * kLineWords;
}

}  // namespace

Int8Layout MakeInt8Layout(const core::ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  constexpr std::size_t kWordBytes = 4;
  constexpr auto kRows = static_cast<std::size_t>(kInt8TileRows);
  constexpr auto kKeys = static_cast<std::size_t>(kInt8FloatBlock);
  Int8Layout layout;
  layout.num_steps = CeilDiv(shape.head_dim, kInt8Group);
  layout.padded_dims = CeilDiv(shape.head_dim_v, kInt8DimStep) * kInt8DimStep;
  layout.wide_stride = SpreadOverCacheSets(layout.padded_dims);
  layout.padded_keys = CeilDiv(shape.max_kv_len, kInt8FloatBlock) * kInt8FloatBlock;
  layout.num_heads = shape.batch * shape.num_kv_heads;

  const std::size_t key_words = Align(static_cast<std::size_t>(layout.padded_keys) * kWordBytes);
  // Of all formats, the larger ones: rows of keys, and steps of values or columns of bf16.
  const std::int64_t padded_keys = CeilDiv(shape.max_kv_len, kInt8Block) * kInt8Block;
  layout.values_at = static_cast<std::size_t>(padded_keys * Int8KeyRowBytes(layout.num_steps));
  std::size_t value_bytes = PackedInt8ValuesBytes(padded_keys, shape.head_dim_v);
  if (problem.int8.values == HEED_INT8_VALUES_BF16) {
    const auto wide_bytes = static_cast<std::size_t>(Int8ValueBytes(Int8ValueFormat::kWideColumns));
    value_bytes = std::max(value_bytes,
                           static_cast<std::size_t>(padded_keys * layout.padded_dims) * wide_bytes);
  }
  layout.key_bias_at = layout.values_at + Align(value_bytes);
  layout.key_factors_at = layout.key_bias_at + key_words;
  layout.value_factors_at = layout.key_factors_at + key_words;
  layout.value_units_at = layout.value_factors_at + key_words;
  layout.column_factors_at =
      layout.value_units_at +
      Align(static_cast<std::size_t>(layout.padded_keys) / kKeys * kWordBytes);
  const auto padded_dims = static_cast<std::size_t>(layout.padded_dims);
  layout.head_bytes = layout.column_factors_at + Align(padded_dims * kWordBytes);

  // A matrix unit reads whole cache lines of a row: 16 steps of the smallest format.
  layout.query_bytes = std::max(
      static_cast<std::size_t>(layout.num_steps) * Int8QueryStepBytes(Int8QueryFormat::kInts),
      static_cast<std::size_t>(Int8KeyRowBytes(layout.num_steps) / kInt8Group) *
          Int8QueryStepBytes(Int8QueryFormat::kSigned));
  layout.tile_bytes = layout.query_bytes + padded_dims * kRows * kWordBytes;
  layout.wide_at = kKeys * kRows * kWordBytes;
  layout.tiles_at =
      layout.wide_at + kKeys * static_cast<std::size_t>(layout.wide_stride) * kWordBytes;
  layout.worker_bytes =
      layout.tiles_at + static_cast<std::size_t>(kInt8TilesPerRange) * layout.tile_bytes;
  return layout;
}

Int8Head Int8Layout::Head(std::uint8_t* workspace, std::int64_t head) const {
  std::uint8_t* at = workspace + static_cast<std::size_t>(head) * head_bytes;
  auto* keys = reinterpret_cast<std::int8_t*>(at);
  auto* values = reinterpret_cast<std::int8_t*>(at + values_at);
  return {keys,
          values,
          keys,
          values,
          reinterpret_cast<std::int32_t*>(at + key_bias_at),
          reinterpret_cast<float*>(at + key_factors_at),
          reinterpret_cast<float*>(at + value_factors_at),
          reinterpret_cast<float*>(at + value_units_at),
          reinterpret_cast<float*>(at + column_factors_at)};
}

Int8WorkerMemory Int8Layout::Worker(std::uint8_t* workspace, std::int64_t worker) const {
  std::uint8_t* at = workspace + static_cast<std::size_t>(num_heads) * head_bytes +
                     static_cast<std::size_t>(worker) * worker_bytes;
  return {at, at + wide_at, at + tiles_at};
}

std::size_t Int8Layout::TotalBytes(std::int64_t num_workers) const {
  return static_cast<std::size_t>(num_heads) * head_bytes +
         static_cast<std::size_t>(num_workers) * worker_bytes;
}

}  // namespace heed::cpu
