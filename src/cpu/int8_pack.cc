#include "cpu/int8_pack.h"

#include <algorithm>
#include <cstring>

namespace heed::cpu {
namespace {

constexpr std::int64_t kSumBias = -128;

std::uint32_t PairOfWords(std::int8_t low, std::int8_t high) {
  const auto low_bits = static_cast<std::uint16_t>(static_cast<std::int16_t>(low));
  const auto high_bits = static_cast<std::uint16_t>(static_cast<std::int16_t>(high));
  return low_bits | static_cast<std::uint32_t>(high_bits) << 16;
}

std::uint32_t FourUnsigned(const std::int8_t (&group)[kInt8Group]) {
  std::uint32_t word = 0;
  for (int n = 0; n < kInt8Group; ++n) {
    word |= static_cast<std::uint32_t>(group[n] - static_cast<int>(kSumBias)) << (8 * n);
  }
  return word;
}

}  // namespace

std::size_t PackedInt8KeysBytes(std::int64_t length, std::int64_t head_dim) {
  return static_cast<std::size_t>(CeilDiv(length, kInt8Block) * CeilDiv(head_dim, kInt8Group)) *
         kInt8StepBytes;
}

std::size_t PackedInt8ValuesBytes(std::int64_t length, std::int64_t head_dim) {
  return static_cast<std::size_t>(CeilDiv(head_dim, kInt8Block) * CeilDiv(length, kInt8Group)) *
         kInt8StepBytes;
}

void PackInt8Keys(const std::int8_t* keys, std::int64_t length, std::int64_t head_dim,
                  std::int8_t* packed) {
  const std::int64_t num_steps = CeilDiv(head_dim, kInt8Group);
  std::memset(packed, 0, PackedInt8KeysBytes(length, head_dim));
  for (std::int64_t key = 0; key < length; ++key) {
    std::int8_t* to =
        packed + key / kInt8Block * num_steps * kInt8StepBytes + key % kInt8Block * kInt8Group;
    const std::int8_t* from = keys + key * head_dim;
    for (std::int64_t d = 0; d < head_dim; d += kInt8Group) {
      const auto count = std::min<std::int64_t>(kInt8Group, head_dim - d);
      std::memcpy(to, from + d, static_cast<std::size_t>(count));
      to += kInt8StepBytes;
    }
  }
}

void PackInt8Values(const std::int8_t* values, std::int64_t length, std::int64_t head_dim,
                    std::int8_t* packed) {
  const std::int64_t tile_bytes = CeilDiv(length, kInt8Group) * kInt8StepBytes;
  std::memset(packed, 0, PackedInt8ValuesBytes(length, head_dim));
  for (std::int64_t key = 0; key < length; ++key) {
    std::int8_t* step = packed + key / kInt8Group * kInt8StepBytes + key % kInt8Group;
    const std::int8_t* from = values + key * head_dim;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      step[d / kInt8Block * tile_bytes + d % kInt8Block * kInt8Group] = from[d];
    }
  }
}

void SumInt8Keys(const std::int8_t* block, std::int64_t num_steps, std::int32_t* bias) {
  std::fill_n(bias, kInt8Block, 0);
  for (std::int64_t step = 0; step < num_steps; ++step) {
    for (int key = 0; key < kInt8Block; ++key) {
      const std::int8_t* group = block + key * kInt8Group;
      bias[key] += group[0] + group[1] + group[2] + group[3];
    }
    block += kInt8StepBytes;
  }
  for (int key = 0; key < kInt8Block; ++key) bias[key] *= static_cast<std::int32_t>(kSumBias);
}

std::size_t Int8QueryStepBytes(Int8QueryFormat format) {
  const int num_words = format == Int8QueryFormat::kInts    ? 4
                        : format == Int8QueryFormat::kWords ? 2
                                                            : 1;
  return static_cast<std::size_t>(num_words) * kInt8TileRows * sizeof(std::uint32_t);
}

void PackInt8Queries(const std::int8_t* rows, int num_rows, std::int64_t head_dim,
                     Int8QueryFormat format, void* packed) {
  auto* words = static_cast<std::uint32_t*>(packed);
  for (std::int64_t d = 0; d < head_dim; d += kInt8Group) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(kInt8Group, head_dim - d));
    for (int row = 0; row < kInt8TileRows; ++row) {
      std::int8_t group[kInt8Group] = {};
      if (row < num_rows) std::memcpy(group, rows + row * head_dim + d, count);
      switch (format) {
        case Int8QueryFormat::kInts:
          for (int n = 0; n < kInt8Group; ++n) {
            words[n * kInt8TileRows + row] = static_cast<std::uint32_t>(std::int32_t{group[n]});
          }
          break;
        case Int8QueryFormat::kWords:
          words[row] = PairOfWords(group[0], group[2]);
          words[kInt8TileRows + row] = PairOfWords(group[1], group[3]);
          break;
        case Int8QueryFormat::kUnsigned:
          words[row] = FourUnsigned(group);
          break;
      }
    }
    words += Int8QueryStepBytes(format) / sizeof(std::uint32_t);
  }
}

}  // namespace heed::cpu
