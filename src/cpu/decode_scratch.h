// How the memory of one decode worker is divided.
#ifndef HEED_CPU_DECODE_SCRATCH_H_
#define HEED_CPU_DECODE_SCRATCH_H_

#include <cstddef>
#include <cstdint>

#include "core/decode_problem.h"
#include "core/decode_split.h"
#include "cpu/decode_kernel.h"

namespace heed::cpu {

// Rows of one head, and of all heads of a task.
inline constexpr int kDecodeRows = static_cast<int>(core::kDecodeTileRows);
inline constexpr int kTaskRows = static_cast<int>(core::kDecodeTaskRows);
static_assert(kDecodeBlock == core::kDecodeBlockKeys);

// Lies at the start of a worker's memory; the pointers name the rest of it.
struct DecodeScratch {
  std::int64_t q_stride_elems;  // head dims rounded up to kRowMultiple
  std::int64_t o_stride_elems;
  float* q;         // [kTaskRows][q_stride_elems]
  float* o;         // [kTaskRows][o_stride_elems]
  float* scores;    // [kDecodeRows][kDecodeBlock]
  float* additive;  // as scores
  float* keep;      // [kDecodeBlock]
  float* key_scales;
  float* value_scales;
  float* max_log2;  // [kTaskRows]
  float* sum;
  float* rescale;
  const void** keys;  // [kDecodeBlock + kRowMultiple], in the cache or unpacked
  const void** values;
  const void** ahead;        // rows of the next block
  const void** ahead_lines;  // interleaved rows: lines of the next block
  float* unpacked;           // [kDecodeBlock][larger stride]
  std::uint8_t* row_bytes;   // one interleaved row, or a row of zeros
  // Interleaved rows only.
  std::int32_t* q_words;  // [kTaskRows][key steps][2]
  float* q_scales;        // [kTaskRows]
  std::int16_t* words;    // [kDecodeRows][kWordsPerRow]
  float* word_scales;     // [kDecodeRows]
  std::int64_t* key_offsets;
  std::int64_t* value_offsets;
};

// Bytes of a worker, a multiple of 64.
std::size_t DecodeScratchBytes(const core::DecodeProblem& problem);

// Requires: memory of DecodeScratchBytes, 64-byte aligned.
DecodeScratch MakeDecodeScratch(const core::DecodeProblem& problem, void* memory);

// The same scratch for rows from first_row on; what lasts for one block is shared.
DecodeScratch SkipRows(const DecodeScratch& scratch, std::int64_t first_row,
                       std::int64_t key_steps);

// Row stride of floats.
constexpr std::int64_t PaddedElems(std::int64_t num_elems) {
  return (num_elems + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
}

}  // namespace heed::cpu

#endif  // HEED_CPU_DECODE_SCRATCH_H_
