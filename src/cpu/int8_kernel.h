// The contract between the portable int8 driver (int8_forward.cc) and the kernels that are compiled
// once per instruction set. Plain data and function pointers only, as in forward_kernel.h.
//
// Tiles are transposed, lanes = query rows: scores and weights [key][row], output [element][row].
// Every operation of the fixed-point softmax is an integer one, exact, or one IEEE rounding in an
// order that does not depend on the lanes, so that all kernels give the same bits. Arrays are
// aligned to 64 bytes.
#ifndef HEED_CPU_INT8_KERNEL_H_
#define HEED_CPU_INT8_KERNEL_H_

#include <cstdint>

#include "core/registry.h"

namespace heed::cpu {

inline constexpr int kInt8TileRows = 48;
inline constexpr int kInt8Block = 64;  // keys of a block of packed keys and of the fixed softmax
inline constexpr int kInt8FloatBlock = 2 * kInt8Block;  // keys of a block of the float softmax
inline constexpr int kNumInt8Modes = 3;
inline constexpr int kInt8Group = 4;     // bytes of one step of a dot product
inline constexpr int kInt8DimStep = 16;  // output elements are padded to a multiple of this
// Raw scores up to head_dim * 2^14 and their differences fit 32 bits.
inline constexpr std::int64_t kMaxInt8HeadDim = 65536;
// Bytes of a step of packed keys (64 keys) and of packed values (64 elements).
inline constexpr int kInt8StepBytes = kInt8Block * kInt8Group;

// Distances to the row's maximum become exponents t = (distance * multiplier + start) >> 18 in
// steps of 2^-8: Q8.8, as unsigned 32-bit arithmetic.
inline constexpr int kExponentShift = 18;
inline constexpr int kExponentFraction = 8;
// Exponents past 30 are cut there: Q16.16 weights are 0 from 17 on.
inline constexpr int kLargestExponent = 30;

// 2^(-f / 256) = (2^23 - f * (A - (f * (B - (f * C >> 8)) >> 8))) / 2^23 for f in [0, 256), all
// shifts rounding to nearest. Constants by search over all f: relative error at most 1.07e-4.
inline constexpr std::int32_t kExp2A = 22659;
inline constexpr std::int32_t kExp2B = 7565;
inline constexpr std::int32_t kExp2C = 1291;
inline constexpr int kExp2Bits = 23;
inline constexpr int kWeightBits = 16;  // weights are Q16.16

// How packed keys lie; int8_pack.h has the layouts.
enum class Int8KeyFormat { kSteps, kRows };
// Likewise packed values.
enum class Int8ValueFormat { kSteps, kColumns, kWideColumns };

// Bytes of a row of Int8KeyFormat::kRows: whole cache lines.
constexpr std::int64_t Int8KeyRowBytes(std::int64_t num_steps) {
  constexpr std::int64_t kLineSteps = 64 / kInt8Group;
  return (num_steps + kLineSteps - 1) / kLineSteps * 64;
}

// How a step of 4 query bytes lies in a packed tile.
enum class Int8QueryFormat {
  kInts,     // [4][rows] int32
  kWords,    // [2][rows] of two int16: elements 0 and 2, elements 1 and 3
  kSigned,   // [rows] of four bytes
  kUnsigned  // [rows] of four bytes q + 128; key_bias takes the 128s away again
};

// scores[key][row] = q[row] . keys[key], int32, or that times key_factors[key], fp32;
// block_max[row] = max(block_max[row], scores of num_keys).
struct Int8ScoresArgs {
  const void* q_steps;
  const std::int8_t* keys;  // of a block: its first step, key n at n * 4, or rows
  std::int64_t num_steps;
  const std::int32_t* key_bias;  // [kInt8Block], -128 * sum of the key; read by kUnsigned only
  int num_keys;
  void* scores;              // [kInt8Block][kInt8TileRows]
  void* block_max;           // [kInt8TileRows], in and out
  const float* key_factors;  // [kInt8Block]; read by scaled_scores only
};

// Scores to weights in place: int32 to fp32 whole numbers, Q16.16.
struct Int8WeightsArgs {
  std::int32_t* scores;
  int num_keys;
  const std::int32_t* row_max;  // [kInt8TileRows], at least every score of the row
  const std::uint32_t* start;   // [kInt8TileRows]
  std::uint32_t multiplier;
  std::uint32_t largest_distance;
  std::int32_t* block_sum;  // [kInt8TileRows], out
};

// Scores of a block to weights 2^((score - max) * factor) in place, and what the block changes for
// each row: row_max, decay = 2^((old max - new max) * factor), row_sum = row_sum * decay + sum of
// the weights. Rows of scores from num_keys up to the next multiple of 4 are -inf.
struct Int8FloatWeightsArgs {
  void* scores;  // [kInt8FloatBlock][kInt8TileRows] int32, or fp32 when scaled; -inf: hidden
  const void* block_max;  // [kInt8TileRows], of the same type
  int num_keys;
  const float* row_factor;     // [kInt8TileRows], positive
  float* row_max;              // [kInt8TileRows], in and out; -inf: nothing seen yet
  float* row_sum;              // [kInt8TileRows], in and out
  float* decay;                // [kInt8TileRows], out
  const float* value_factors;  // [kInt8FloatBlock], multiply the weights but not the sum; null = 1
};

// Values of a block as the product with the weights wants them, from packed values:
// fp32 [keys][wide_stride], or pairs of bf16 [keys / 2][wide_stride][2].
struct Int8WidenArgs {
  // First step of the block in the first tile of 64 elements, or the block's first column.
  const std::int8_t* values;
  std::int64_t tile_stride_bytes;  // of steps
  std::int64_t padded_dims;
  std::int64_t wide_stride;
  int num_keys;
  void* wide;
};

// o[d][row] = rescale[row] * o[d][row] + unit * sum over the keys, in their order, of weight *
// value. unit is 1 unless values are bytes.
struct Int8ValuesArgs {
  const void* weights;
  const void* values;              // widened, or as Int8WidenArgs.values where nothing widens
  std::int64_t tile_stride_bytes;  // of packed values
  std::int64_t wide_stride;        // of widened ones
  std::int64_t padded_dims;
  int num_keys;
  const float* rescale;  // [kInt8TileRows]; null = 1, with the fixed softmax only
  float unit;
  float* o;  // [padded_dims][kInt8TileRows]
};

// Scores and weights of a block that all rows see, relative to row_max as it is. num_keys, of
// products and of weights, is a multiple of kInt8Group; products has no block_max, and
// no key_factors where all are 1.
struct Int8WeighArgs {
  Int8ScoresArgs products;
  Int8FloatWeightsArgs weights;  // scores: [kInt8FloatBlock][kInt8TileRows], out only
};

// rows[row][d] = factor[row] * o[d][row] * column_factors[d]
struct Int8RowsArgs {
  const float* o;
  const float* factor;          // [kInt8TileRows]
  const float* column_factors;  // [padded_dims]; null = 1
  std::int64_t padded_dims;
  float* rows;  // [kInt8TileRows][padded_dims]
};

// One arithmetic of P V with the float softmax.
struct Int8FloatMode {
  void (*weights)(const Int8FloatWeightsArgs& args);         // null: this target lacks the mode
  void (*scaled_weights)(const Int8FloatWeightsArgs& args);  // of scaled scores
  void (*widen)(const Int8WidenArgs& args);                  // null: reads packed values
  void (*values)(const Int8ValuesArgs& args);
  float weight_unit;  // what a weight of 1 is stored and summed as
  Int8ValueFormat value_format = Int8ValueFormat::kSteps;
  // False: a row has no maximum yet, or a weight would pass 2^kWeightSlackLog2, and no row has
  // changed. Null: every block needs its maxima first.
  bool (*weigh)(const Int8WeighArgs& args) = nullptr;
};

struct Int8Kernel {
  Int8QueryFormat q_format;
  void (*scores)(const Int8ScoresArgs& args);
  void (*weights)(const Int8WeightsArgs& args);
  void (*widen)(const Int8WidenArgs& args);
  void (*values)(const Int8ValuesArgs& args);
  void (*rows)(const Int8RowsArgs& args);
  void (*scaled_scores)(const Int8ScoresArgs& args);
  Int8FloatMode modes[kNumInt8Modes];  // by heed_int8_values_t
  Int8KeyFormat key_format = Int8KeyFormat::kSteps;
  // Around all other calls on a thread; null where there is nothing to do.
  void (*start_thread)() = nullptr;
  void (*stop_thread)() = nullptr;
};

// Null when the target is not part of this build.
const Int8Kernel* FindInt8Kernel(core::CpuTarget target);

}  // namespace heed::cpu

#endif  // HEED_CPU_INT8_KERNEL_H_
