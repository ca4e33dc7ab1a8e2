// The contract between the portable int8 driver (int8_forward.cc) and the kernels that are compiled
// once per instruction set. Plain data and function pointers only, as in forward_kernel.h.
//
// Tiles are transposed, lanes = query rows: scores and weights [key][row], output [element][row].
// Every operation is an integer one, exact, or one IEEE rounding in an order that does not depend
// on the lanes, so that all kernels give the same bits. Arrays are aligned to 64 bytes.
#ifndef HEED_CPU_INT8_KERNEL_H_
#define HEED_CPU_INT8_KERNEL_H_

#include <cstdint>

#include "core/registry.h"

namespace heed::cpu {

inline constexpr int kInt8TileRows = 48;
inline constexpr int kInt8Block = 64;    // keys
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

// How a step of 4 query bytes lies in a packed tile.
enum class Int8QueryFormat {
  kInts,     // [4][rows] int32
  kWords,    // [2][rows] of two int16: elements 0 and 2, elements 1 and 3
  kUnsigned  // [rows] of four bytes q + 128; key_bias takes the 128s away again
};

// scores[key][row] = q[row] . keys[key];  block_max[row] = max(block_max[row], scores of num_keys)
struct Int8ScoresArgs {
  const void* q_steps;
  const std::int8_t* keys;  // first step of the block; key n at n * 4
  std::int64_t num_steps;
  const std::int32_t* key_bias;  // [kInt8Block], -128 * sum of the key; read by kUnsigned only
  int num_keys;
  std::int32_t* scores;     // [kInt8Block][kInt8TileRows]
  std::int32_t* block_max;  // [kInt8TileRows], in and out
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

// fp32 values of a block: [kInt8Block][padded_dims], from packed values.
struct Int8WidenArgs {
  const std::int8_t* values;  // first step of the block in the first tile of 64 elements
  std::int64_t tile_stride_bytes;
  std::int64_t padded_dims;
  int num_keys;
  float* wide;
};

// o[d][row] = rescale[row] * o[d][row] + sum over the keys, in their order, of weight * value.
struct Int8ValuesArgs {
  const float* weights;
  const float* wide;
  std::int64_t padded_dims;
  int num_keys;
  const float* rescale;  // [kInt8TileRows]; null = 1
  float* o;              // [padded_dims][kInt8TileRows]
};

struct Int8Kernel {
  Int8QueryFormat q_format;
  void (*scores)(const Int8ScoresArgs& args);
  void (*weights)(const Int8WeightsArgs& args);
  void (*widen)(const Int8WidenArgs& args);
  void (*values)(const Int8ValuesArgs& args);
};

// Null when the target is not part of this build.
const Int8Kernel* FindInt8Kernel(core::CpuTarget target);

}  // namespace heed::cpu

#endif  // HEED_CPU_INT8_KERNEL_H_
