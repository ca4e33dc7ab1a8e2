// The contract between the portable decode driver (decode*.cc) and the kernels that are compiled
// once per instruction set. Plain data and function pointers only, as in forward_kernel.h.
//
// Words used here and in the kernels:
//   row     one query row: token-major, the G query heads of one KV head side by side
//   block   up to kDecodeBlock consecutive keys on a grid that starts at key 0; key n of a block is
//           the n-th of those that this call looks at
//   direct  an element format that the kernels read from the cache as it is; other formats, and
//           rows that do not fill whole vectors or blocks, are first unpacked to fp32
// Arrays of floats are aligned to 64 bytes and padded to kRowMultiple elements a row.
#ifndef HEED_CPU_DECODE_KERNEL_H_
#define HEED_CPU_DECODE_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "core/registry.h"

namespace heed::cpu {

inline constexpr int kDecodeBlock = 128;
// Rows of floats are padded to a multiple of this: the widest vector.
inline constexpr std::int64_t kRowMultiple = 16;
// In additive terms: the key is hidden, whatever its score.
inline constexpr float kHiddenTerm = __builtin_inff();

enum KvElement : int {
  kElementF32,
  kElementF16,
  kElementBF16,
  kElementI8,
  kElementF8,
  kElementI4,
  kElementQ8,
  kElementQ4,
  kNumKvElements
};

// One row of any format to fp32, scales of groups applied, padding zero.
struct UnpackArgs {
  const void* row;
  const float* scales;  // null = none, or applied elsewhere
  std::int64_t scale_stride_elems;
  std::int64_t group_elems;  // elements of one scale
  std::int64_t num_elems;
  float* destination;  // padded to kRowMultiple
};

// scores[row][key] = q[row] . keys[key], for rows of direct elements.
struct DecodeScoresArgs {
  const float* q;  // [num_rows][q_stride_elems]
  std::int64_t q_stride_elems;
  int num_rows;
  const void* const* keys;   // [num_keys], then copies of the last up to a multiple of kRowMultiple
  const void* const* ahead;  // likewise: rows to prefetch, of as many bytes
  int num_keys;
  std::int64_t num_elems;  // a multiple of the lanes, and of the elements of a block
  float* scores;           // [num_rows][kDecodeBlock]
};

// The same for interleaved int8 keys: blocks of 16 slots, a vector of 16 slots x 4 elements at
// every offset.
struct InterleavedBlocks {
  const std::uint8_t* const* blocks;  // [num_blocks]: first row of 16 slots
  const void* const* ahead;  // [num_blocks * num_steps]: lines to prefetch, one for each vector of
                             // 64 bytes, in the order in which they are to be asked for
  int num_blocks;
  const std::int64_t* offsets;  // [num_steps]: bytes from there to the elements 4 n to 4 n + 3
  std::int64_t num_steps;
};
// How a kernel wants the words of q.
enum class WordForm : std::uint8_t {
  kPairs,  // {q0, q2}, {q1, q3} of 16 bits each
  kPlanes  // q0 to q3 as 256 * high + low in signed bytes: {high0 .. high3}, {low0 .. low3}
};
// The largest word in either form: 256 * 127 + 127.
inline constexpr std::int32_t kLargestWord = 32639;

struct WordScoresArgs {
  const std::int32_t* q_words;  // [num_rows][num_steps][2], of the kernel's form
  const float* q_scales;        // [num_rows]
  int num_rows;
  InterleavedBlocks keys;
  float* scores;  // [num_rows][kDecodeBlock]
};

// Softmax of one row over one block. The kernels take several rows, which they run side by side.
struct DecodeSoftmaxArgs {
  float* scores;  // [kDecodeBlock], overwritten with weights, 0 where hidden and past num_keys
  int num_keys;
  float scale;
  float softcap;              // 0 = off
  const float* key_scales;    // [num_keys]; null = 1
  const float* value_scales;  // [num_keys], multiplies the weights but not their sum; null = 1
  const float* additive;      // [num_keys], natural-log units, kHiddenTerm hides; null = none
  const float* keep;          // dropout, [num_keys] of 0 or 1, for the weights; null = none
  int visible_begin, visible_end;
  float max_log2, sum;  // in and out
  float rescale;        // out: what earlier sums are to be multiplied with
};

// The same with weights as 16-bit integers for interleaved values, relative to the maximum of the
// block: weight = word * word_scale. Rows taken together share value_scales and the largest.
struct WordSoftmaxArgs {
  DecodeSoftmaxArgs row;
  float largest_value_scale;  // of the block; NaN spoils the row
  std::int16_t* words;        // out [kDecodeBlock / 16][2][16 slots x 2]: for the values kernel
  float word_scale;           // out
};

// o[row] = rescale[row] * o[row] + sum over the keys of weight * value, for direct elements.
struct DecodeValuesArgs {
  const float* weights;  // [num_rows][kDecodeBlock]
  int num_rows;
  const void* const* values;  // [num_keys]
  const void* const* ahead;   // [num_keys]: rows to prefetch
  int num_keys;
  std::int64_t num_elems;  // a multiple of the lanes, and of the elements of a block
  const float* rescale;    // [num_rows]
  float* o;                // [num_rows][o_stride_elems]
  std::int64_t o_stride_elems;
};

struct WordValuesArgs {
  const std::int16_t* words;  // [num_rows][kWordsPerRow]
  const float* word_scales;   // [num_rows]
  int num_rows;
  InterleavedBlocks values;
  const float* rescale;
  float* o;
  std::int64_t o_stride_elems;
};

// Both halves of the weights of 16 slots, each slot's weight for 4 elements.
inline constexpr int kWordsPerRow = kDecodeBlock / 16 * 64;

struct StoreDecodeRowArgs {
  const float* o;
  float factor;
  void* row;
  std::int64_t num_elems;
};

struct DecodeKernel {
  int lanes;
  void (*unpack[kNumKvElements])(const UnpackArgs& args);
  // Of direct elements; null = this kernel has them unpacked. fp32 is always there.
  void (*scores[kNumKvElements])(const DecodeScoresArgs& args);
  void (*softmax)(DecodeSoftmaxArgs* rows, int num_rows);
  void (*values[kNumKvElements])(const DecodeValuesArgs& args);
  void (*store_row[3])(const StoreDecodeRowArgs& args);  // f32, f16, bf16
  WordForm word_form;
  // Null where interleaved rows are unpacked instead.
  void (*word_scores)(const WordScoresArgs& args);
  void (*word_softmax)(WordSoftmaxArgs* rows, int num_rows);
  void (*word_values)(const WordValuesArgs& args);
};

// Null when the target is not part of this build.
const DecodeKernel* FindDecodeKernel(core::CpuTarget target);

}  // namespace heed::cpu

#endif  // HEED_CPU_DECODE_KERNEL_H_
