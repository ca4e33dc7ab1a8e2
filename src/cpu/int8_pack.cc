#include "cpu/int8_pack.h"

#include <algorithm>
#include <cstring>

namespace heed::cpu {
namespace {

constexpr std::int64_t kSumBias = -128;

// Adding 128 to a byte turns its sign bit.
constexpr std::uint32_t kSignBits = 0x80808080u;

std::uint32_t PairOfWords(std::int8_t low, std::int8_t high) {
  const auto low_bits = static_cast<std::uint16_t>(static_cast<std::int16_t>(low));
  const auto high_bits = static_cast<std::uint16_t>(static_cast<std::int16_t>(high));
  return low_bits | static_cast<std::uint32_t>(high_bits) << 16;
}

// The bytes of a group that exist, 0 for the others.
struct Group {
  std::int8_t bytes[kInt8Group];
};
Group LoadGroup(const std::int8_t* row, std::int64_t d, std::int64_t head_dim) {
  Group group = {};
  const auto count = static_cast<std::size_t>(std::min<std::int64_t>(kInt8Group, head_dim - d));
  if (count == kInt8Group) {
    std::memcpy(group.bytes, row + d, kInt8Group);
  } else {
    std::memcpy(group.bytes, row + d, count);
  }
  return group;
}

void PackBytesRow(const std::int8_t* row, std::int64_t head_dim, std::uint32_t turned_bits,
                  std::uint32_t* words) {
  for (std::int64_t d = 0; d < head_dim; d += kInt8Group) {
    const Group group = row != nullptr ? LoadGroup(row, d, head_dim) : Group{};
    *words = __builtin_bit_cast(std::uint32_t, group) ^ turned_bits;
    words += kInt8TileRows;
  }
}

void PackWordsRow(const std::int8_t* row, std::int64_t head_dim, std::uint32_t* words) {
  for (std::int64_t d = 0; d < head_dim; d += kInt8Group) {
    const Group group = row != nullptr ? LoadGroup(row, d, head_dim) : Group{};
    words[0] = PairOfWords(group.bytes[0], group.bytes[2]);
    words[kInt8TileRows] = PairOfWords(group.bytes[1], group.bytes[3]);
    words += 2 * kInt8TileRows;
  }
}

void PackIntsRow(const std::int8_t* row, std::int64_t head_dim, std::uint32_t* words) {
  for (std::int64_t d = 0; d < head_dim; d += kInt8Group) {
    const Group group = row != nullptr ? LoadGroup(row, d, head_dim) : Group{};
    for (const std::int8_t byte : group.bytes) {
      *words = static_cast<std::uint32_t>(std::int32_t{byte});
      words += kInt8TileRows;
    }
  }
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

void PackInt8Keys(const Int8Matrix& keys, std::int64_t first, std::int64_t end,
                  std::int8_t* packed) {
  const std::int64_t num_steps = CeilDiv(keys.head_dim, kInt8Group);
  const std::int64_t padded_end = CeilDiv(end, kInt8Block) * kInt8Block;
  for (std::int64_t key = first; key < padded_end; ++key) {
    std::int8_t* to =
        packed + key / kInt8Block * num_steps * kInt8StepBytes + key % kInt8Block * kInt8Group;
    const std::int8_t* from = key < end ? keys.data + key * keys.row_stride : nullptr;
    for (std::int64_t d = 0; d < keys.head_dim; d += kInt8Group) {
      const Group group = from != nullptr ? LoadGroup(from, d, keys.head_dim) : Group{};
      std::memcpy(to, group.bytes, kInt8Group);
      to += kInt8StepBytes;
    }
  }
}

void PackInt8Values(const Int8Matrix& values, std::int64_t first, std::int64_t end,
                    std::int8_t* packed) {
  const std::int64_t tile_bytes = CeilDiv(values.length, kInt8Group) * kInt8StepBytes;
  const std::int64_t padded_dims = CeilDiv(values.head_dim, kInt8Block) * kInt8Block;
  for (std::int64_t key = first; key < end; key += kInt8Group) {
    const std::int8_t* rows[kInt8Group];
    for (int n = 0; n < kInt8Group; ++n) {
      // A row that does not exist is hidden below; any readable one stands for it.
      rows[n] = values.data + std::min(key + n, end - 1) * values.row_stride;
    }
    const std::int64_t num_rows = std::min<std::int64_t>(kInt8Group, end - key);
    const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << (8 * num_rows)) - 1);
    for (std::int64_t d = 0; d < padded_dims; d += kInt8Block) {
      std::int8_t* to = packed + d / kInt8Block * tile_bytes + key / kInt8Group * kInt8StepBytes;
      const auto count = static_cast<int>(std::min<std::int64_t>(kInt8Block, values.head_dim - d));
      std::uint32_t words[kInt8Block] = {};
      for (int n = 0; n < count; ++n) {
        words[n] = (std::uint32_t{static_cast<std::uint8_t>(rows[0][d + n])} |
                    std::uint32_t{static_cast<std::uint8_t>(rows[1][d + n])} << 8 |
                    std::uint32_t{static_cast<std::uint8_t>(rows[2][d + n])} << 16 |
                    std::uint32_t{static_cast<std::uint8_t>(rows[3][d + n])} << 24) &
                   mask;
      }
      std::memcpy(to, words, sizeof(words));
    }
  }
}

void PackInt8KeyRows(const Int8Matrix& keys, std::int64_t first, std::int64_t end,
                     std::int8_t* packed) {
  const std::int64_t row_bytes = Int8KeyRowBytes(CeilDiv(keys.head_dim, kInt8Group));
  const std::int64_t padded_end = CeilDiv(end, kInt8Block) * kInt8Block;
  for (std::int64_t key = first; key < padded_end; ++key) {
    std::int8_t* to = packed + key * row_bytes;
    const std::int64_t count = key < end ? keys.head_dim : 0;
    std::copy_n(keys.data + (key < end ? key * keys.row_stride : 0), count, to);
    std::fill(to + count, to + row_bytes, std::int8_t{0});
  }
}

void PackInt8ValueColumns(const Int8Matrix& values, std::int64_t first, std::int64_t end,
                          std::int8_t* packed) {
  const std::int64_t padded_dims = CeilDiv(values.head_dim, kInt8DimStep) * kInt8DimStep;
  for (std::int64_t block = first; block < end; block += kInt8Block) {
    const std::int64_t count = std::min<std::int64_t>(kInt8Block, end - block);
    std::int8_t* to = packed + block * padded_dims;
    for (std::int64_t d = 0; d < padded_dims; ++d) {
      const std::int64_t num_keys = d < values.head_dim ? count : 0;
      const std::int8_t* from = values.data + block * values.row_stride + d;
      for (std::int64_t n = 0; n < num_keys; ++n) to[n] = from[n * values.row_stride];
      std::fill(to + num_keys, to + kInt8Block, std::int8_t{0});
      to += kInt8Block;
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

void PackInt8Queries(const std::int8_t* const (&rows)[kInt8TileRows], std::int64_t head_dim,
                     Int8QueryFormat format, void* packed) {
  auto* words = static_cast<std::uint32_t*>(packed);
  for (int row = 0; row < kInt8TileRows; ++row) {
    switch (format) {
      case Int8QueryFormat::kInts:
        PackIntsRow(rows[row], head_dim, words + row);
        break;
      case Int8QueryFormat::kWords:
        PackWordsRow(rows[row], head_dim, words + row);
        break;
      case Int8QueryFormat::kSigned:
        PackBytesRow(rows[row], head_dim, 0, words + row);
        break;
      case Int8QueryFormat::kUnsigned:
        PackBytesRow(rows[row], head_dim, kSignBits, words + row);
        break;
    }
  }
}

}  // namespace heed::cpu
