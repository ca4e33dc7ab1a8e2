// The fixed-point softmax of the int8 kernels: what is computed once a row and block.
//
// A raw score s is round(s * multiplier / 2^18) steps of 2^-8 in log2 units. Weights are relative
// to 2^E, E the row's maximum rounded up to a whole number, so that a new maximum rescales earlier
// sums by a power of two, without rounding: errors do not add up over blocks.
#ifndef HEED_CPU_INT8_SOFTMAX_H_
#define HEED_CPU_INT8_SOFTMAX_H_

#include <cstdint>
#include <limits>

#include "cpu/int8_kernel.h"

namespace heed::cpu {

struct Int8Scale {
  std::uint32_t multiplier;        // log2(e) * scale in steps of 2^-26
  std::uint32_t largest_distance;  // distances are cut here: their weights are 0
};
// scale of q . k, from 2^-9 to 2.
Int8Scale MakeInt8Scale(double scale);

// Per row of a tile.
struct alignas(64) Int8Rows {
  std::int32_t max[kInt8TileRows];       // raw score
  std::uint32_t start[kInt8TileRows];    // of Int8WeightsArgs
  std::int32_t exponent[kInt8TileRows];  // E
  float sum[kInt8TileRows];              // of the weights, in steps of 2^-16
};
void StartInt8Rows(Int8Rows* rows);

// Takes the maxima of a block in; rescale[row] = 2^(old E - new E). Returns whether any is not 1.
bool RaiseInt8Rows(const std::int32_t* block_max, const Int8Scale& scale, Int8Rows* rows,
                   float* rescale);
// sum = rescale * sum + block_sum; rescale null = 1.
void AddInt8Sums(const std::int32_t* block_sum, const float* rescale, Int8Rows* rows);

// A score that no row sees: its weight is 0.
inline constexpr std::int32_t kHiddenInt8Score = std::numeric_limits<std::int32_t>::min();

// Natural log of the sum of exp(score); -inf when nothing was seen. The same bits on every machine:
// no function of libm.
float Int8LogSumExp(const Int8Rows& rows, int row);

}  // namespace heed::cpu

#endif  // HEED_CPU_INT8_SOFTMAX_H_
