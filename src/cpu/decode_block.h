// One block of keys of a decode task.
#ifndef HEED_CPU_DECODE_BLOCK_H_
#define HEED_CPU_DECODE_BLOCK_H_

#include "cpu/decode_task.h"
#include "device/mask.h"

namespace heed::cpu {

// The kernels' integer products run this problem's interleaved rows as they are.
bool UsesWords(const DecodeContext& context);

// The offsets of the 4-element groups of interleaved rows, and q as words, for all blocks.
void PrepareWords(const DecodeContext& context, const DecodeRows& rows,
                  const DecodeScratch& scratch);

// Keys of one block, not empty, and those that come after it: each head of the task has its share
// of them prefetched.
struct KeysAndNext {
  device::KeyRange keys;
  device::KeyRange next;
  std::int64_t share = 0, num_shares = 1;
};

// Adds the keys to o, max_log2 and sum of the scratch.
void RunDecodeBlock(const DecodeContext& context, const DecodeRows& rows, const KeysAndNext& keys,
                    const DecodeScratch& scratch);

}  // namespace heed::cpu

#endif  // HEED_CPU_DECODE_BLOCK_H_
