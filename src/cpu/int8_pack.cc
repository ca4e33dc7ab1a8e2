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

// 16 bytes of four rows are transposed at once, as groups or as bytes.
constexpr int kSquareRows = 4;
constexpr int kVectorBytes = 16;
typedef std::uint32_t GroupVector __attribute__((vector_size(kVectorBytes)));
typedef std::uint8_t ByteVector __attribute__((vector_size(kVectorBytes)));

template <class Vector>
Vector LoadVector(const std::int8_t* from) {
  Vector x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

// to[n * stride_words + row] = group n of each row, its bits turned.
void TransposeGroups(const std::int8_t* const* rows, std::int64_t d, std::uint32_t turned_bits,
                     std::uint32_t* to, std::int64_t stride_words) {
  const auto a = LoadVector<GroupVector>(rows[0] + d), b = LoadVector<GroupVector>(rows[1] + d);
  const auto c = LoadVector<GroupVector>(rows[2] + d), e = LoadVector<GroupVector>(rows[3] + d);
  const GroupVector low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) ^ turned_bits;
  const GroupVector low_ce = __builtin_shufflevector(c, e, 0, 4, 1, 5) ^ turned_bits;
  const GroupVector high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7) ^ turned_bits;
  const GroupVector high_ce = __builtin_shufflevector(c, e, 2, 6, 3, 7) ^ turned_bits;
  const GroupVector columns[] = {__builtin_shufflevector(low_ab, low_ce, 0, 1, 4, 5),
                                 __builtin_shufflevector(low_ab, low_ce, 2, 3, 6, 7),
                                 __builtin_shufflevector(high_ab, high_ce, 0, 1, 4, 5),
                                 __builtin_shufflevector(high_ab, high_ce, 2, 3, 6, 7)};
  for (const GroupVector& column : columns) {
    std::memcpy(to, &column, sizeof(column));
    to += stride_words;
  }
}

// The groups of kSquareRows rows of head_dim bytes, those of a row one after the other
// stride_words apart.
void PackGroups(const std::int8_t* const* rows, std::int64_t head_dim, std::uint32_t turned_bits,
                std::uint32_t* words, std::int64_t stride_words) {
  std::int64_t d = 0;
  for (; d + kVectorBytes <= head_dim; d += kVectorBytes) {
    TransposeGroups(rows, d, turned_bits, words, stride_words);
    words += kVectorBytes / kInt8Group * stride_words;
  }
  for (; d < head_dim; d += kInt8Group) {
    for (int n = 0; n < kSquareRows; ++n) {
      words[n] = __builtin_bit_cast(std::uint32_t, LoadGroup(rows[n], d, head_dim)) ^ turned_bits;
    }
    words += stride_words;
  }
}

// Of rows that may be missing, which are then 0.
void PackByteRows(const std::int8_t* const* rows, std::int64_t head_dim, std::uint32_t turned_bits,
                  std::uint32_t* words) {
  if (std::find(rows, rows + kSquareRows, nullptr) == rows + kSquareRows) {
    return PackGroups(rows, head_dim, turned_bits, words, kInt8TileRows);
  }
  for (std::int64_t d = 0; d < head_dim; d += kInt8Group) {
    for (int n = 0; n < kSquareRows; ++n) {
      const Group group = rows[n] != nullptr ? LoadGroup(rows[n], d, head_dim) : Group{};
      words[n] = __builtin_bit_cast(std::uint32_t, group) ^ turned_bits;
    }
    words += kInt8TileRows;
  }
}

// to[element][row] of kVectorBytes elements of kSquareRows rows.
void TransposeBytes(const std::int8_t* const* rows, std::int64_t d, std::uint8_t* to) {
  const auto a = LoadVector<ByteVector>(rows[0] + d), b = LoadVector<ByteVector>(rows[1] + d);
  const auto c = LoadVector<ByteVector>(rows[2] + d), e = LoadVector<ByteVector>(rows[3] + d);
  const auto low = [](ByteVector x, ByteVector y) {
    return __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  };
  const auto high = [](ByteVector x, ByteVector y) {
    return __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
  };
  // Bytes a0 c0 a1 c1 ... and b0 e0 b1 e1 ..., which then meet as a0 b0 c0 e0.
  const ByteVector low_ac = low(a, c), high_ac = high(a, c), low_be = low(b, e),
                   high_be = high(b, e);
  const ByteVector quads[] = {low(low_ac, low_be), high(low_ac, low_be), low(high_ac, high_be),
                              high(high_ac, high_be)};
  std::memcpy(to, quads, sizeof(quads));
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

// Square of bytes that is transposed in the words of general registers.
constexpr int kSquare = 8;

// Swaps the bytes `distance` apart of words `distance` apart that lie across the diagonal.
void SwapAcross(int distance, std::uint64_t mask, std::uint64_t (&words)[kSquare]) {
  for (int n = 0; n < kSquare; ++n) {
    if ((n & distance) != 0) continue;
    std::uint64_t& low = words[n];
    std::uint64_t& high = words[n + distance];
    const std::uint64_t differing = ((low >> (8 * distance)) ^ high) & mask;
    high ^= differing;
    low ^= differing << (8 * distance);
  }
}

// to[d * kInt8Block + n] = from[n * row_stride + d] for n and d below kSquare.
void TransposeSquare(const std::int8_t* from, std::int64_t row_stride, std::int8_t* to) {
  std::uint64_t words[kSquare];
  for (int n = 0; n < kSquare; ++n) std::memcpy(&words[n], from + n * row_stride, kSquare);
  SwapAcross(4, 0x00000000FFFFFFFFu, words);
  SwapAcross(2, 0x0000FFFF0000FFFFu, words);
  SwapAcross(1, 0x00FF00FF00FF00FFu, words);
  for (int d = 0; d < kSquare; ++d) std::memcpy(to + d * kInt8Block, &words[d], kSquare);
}

struct BlockPlace {
  std::int64_t first_key, first_dim;
  std::int64_t end_key;  // keys from there on are 0, like dimensions from head_dim on
};

// to[kInt8DimStep][kInt8Block] = columns of kInt8Block values.
void TransposeBlock(const Int8Matrix& values, const BlockPlace& place, std::int8_t* to) {
  const std::int64_t num_keys = std::min<std::int64_t>(kInt8Block, place.end_key - place.first_key);
  const std::int64_t num_dims =
      std::min<std::int64_t>(kInt8DimStep, values.head_dim - place.first_dim);
  const std::int8_t* rows = values.data + place.first_key * values.row_stride + place.first_dim;
  if (num_keys == kInt8Block && num_dims == kInt8DimStep) {
    for (int n = 0; n < kInt8Block; n += kSquare) {
      for (int d = 0; d < kInt8DimStep; d += kSquare) {
        TransposeSquare(rows + n * values.row_stride + d, values.row_stride,
                        to + d * kInt8Block + n);
      }
    }
    return;
  }
  std::fill_n(to, kInt8DimStep * kInt8Block, std::int8_t{0});
  for (std::int64_t n = 0; n < num_keys; ++n) {
    for (std::int64_t d = 0; d < num_dims; ++d) {
      to[d * kInt8Block + n] = rows[n * values.row_stride + d];
    }
  }
}

// Integers of one byte as bf16, which holds them exactly.
void WidenColumn(const std::int8_t* from, std::uint16_t* to) {
  for (int n = 0; n < kInt8WideKeys; ++n) {
    const auto bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(from[n]));
    to[n] = static_cast<std::uint16_t>(bits >> 16);
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
  std::int64_t key = first;
  for (; key + kSquareRows <= end; key += kSquareRows) {
    const std::int8_t* rows[kSquareRows];
    for (int n = 0; n < kSquareRows; ++n) rows[n] = keys.data + (key + n) * keys.row_stride;
    std::int8_t* to =
        packed + key / kInt8Block * num_steps * kInt8StepBytes + key % kInt8Block * kInt8Group;
    PackGroups(rows, keys.head_dim, 0, reinterpret_cast<std::uint32_t*>(to), kInt8Block);
  }
  for (; key < padded_end; ++key) {
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
      if (count == kInt8Block && num_rows == kInt8Group) {
        for (int n = 0; n < kInt8Block; n += kVectorBytes) {
          TransposeBytes(rows, d + n, reinterpret_cast<std::uint8_t*>(to) + n * kInt8Group);
        }
        continue;
      }
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
    for (std::int64_t d = 0; d < padded_dims; d += kInt8DimStep) {
      TransposeBlock(values, {block, d, end}, packed + (block * padded_dims + d * kInt8Block));
    }
  }
}

void PackInt8WideColumns(const Int8Matrix& values, std::int64_t first, std::int64_t end,
                         std::int8_t* packed) {
  const std::int64_t padded_dims = CeilDiv(values.head_dim, kInt8DimStep) * kInt8DimStep;
  auto* wide = reinterpret_cast<std::uint16_t*>(packed);
  std::int8_t columns[kInt8DimStep * kInt8Block];
  for (std::int64_t block = first; block < end; block += kInt8Block) {
    for (std::int64_t d = 0; d < padded_dims; d += kInt8DimStep) {
      TransposeBlock(values, {block, d, end}, columns);
      for (int key = 0; key < kInt8Block; key += kInt8WideKeys) {
        std::uint16_t* to = wide + (block + key) * padded_dims + d * kInt8WideKeys;
        for (int n = 0; n < kInt8DimStep; ++n) {
          WidenColumn(columns + n * kInt8Block + key, to + n * kInt8WideKeys);
        }
      }
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
  static_assert(kInt8TileRows % kSquareRows == 0);
  auto* words = static_cast<std::uint32_t*>(packed);
  const bool is_bytes = format == Int8QueryFormat::kSigned || format == Int8QueryFormat::kUnsigned;
  const std::uint32_t turned_bits = format == Int8QueryFormat::kUnsigned ? kSignBits : 0;
  for (int row = 0; row < kInt8TileRows; row += is_bytes ? kSquareRows : 1) {
    if (format == Int8QueryFormat::kInts) {
      PackIntsRow(rows[row], head_dim, words + row);
    } else if (format == Int8QueryFormat::kWords) {
      PackWordsRow(rows[row], head_dim, words + row);
    } else {
      PackByteRows(rows + row, head_dim, turned_bits, words + row);
    }
  }
}

}  // namespace heed::cpu
