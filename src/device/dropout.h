// The bit-exact dropout mask: a pure function of (seed, offset, head, i, j), the same on every
// backend, for every tile shape and in every pass. docs/dropout.md is the specification.
//
// One Philox call serves a patch of 8 score elements, 16 bits each. Inside every aligned 16 x 16
// block of (query i, key j) a patch is rows {r, r + 8} x columns {c, c + 1, c + 8, c + 9} with
// r = i % 8 and c = 2 * ((j % 8) / 2):
//
//            j%16:  c       c+1     c+8     c+9
//   i%16 = r      [ w0.low  w0.high w1.low  w1.high ]
//   i%16 = r + 8  [ w2.low  w2.high w3.low  w3.high ]
#ifndef HEED_DEVICE_DROPOUT_H_
#define HEED_DEVICE_DROPOUT_H_

#include "device/philox.h"
#include "device/prelude.h"

namespace heed::device {

inline constexpr u32 kDropoutSteps = 65536;  // a 16-bit number is compared with the threshold

// Number of the 65536 equally likely values that drop an element: p rounded to a multiple of
// 1/65536, halves up. Requires 0 <= p < 1. At most 65535, so that something can be kept.
HEED_DEVICE u32 DropThreshold(double p) {
  const u32 rounded = static_cast<u32>(p * kDropoutSteps + 0.5);
  return Min(rounded, kDropoutSteps - 1);
}

HEED_DEVICE bool IsKept(u32 number, u32 drop_threshold) { return number >= drop_threshold; }

// Factor of kept probabilities, 1 / (1 - p) for the rounded p.
template <class Real = float>
HEED_DEVICE Real KeepScale(u32 drop_threshold) {
  return static_cast<Real>(kDropoutSteps) / static_cast<Real>(kDropoutSteps - drop_threshold);
}

// What the mask of one call depends on besides the element.
struct DropoutStream {
  PhiloxKey key;
  u32 offset_low = 0;
};

HEED_DEVICE DropoutStream MakeDropoutStream(u64 seed, u64 offset) {
  const u32 seed_high = static_cast<u32>(seed >> 32);
  const u32 offset_high = static_cast<u32>(offset >> 32);
  return DropoutStream{{static_cast<u32>(seed), seed_high ^ offset_high}, static_cast<u32>(offset)};
}

struct DropoutPatch {
  u32 row_patch = 0;
  u32 column_patch = 0;
};

HEED_DEVICE DropoutPatch PatchOf(u32 i, u32 j) {
  return DropoutPatch{i / 16 * 8 + i % 8, j / 16 * 4 + j % 8 / 2};
}

// The four words of a patch. head_index is b * Hq + h.
HEED_DEVICE PhiloxWords DropoutWords(const DropoutStream& stream, u32 head_index,
                                     DropoutPatch patch) {
  return Philox4x32({{patch.column_patch, patch.row_patch, head_index, stream.offset_low}},
                    stream.key);
}

// The 16-bit number of element (i, j) in the words of its patch.
HEED_DEVICE u32 NumberInPatch(const PhiloxWords& words, u32 i, u32 j) {
  // Selects, not an index: an array indexed at run time would leave a GPU's registers.
  const bool is_lower = i % 16 >= 8;
  const u32 left = is_lower ? words.word[2] : words.word[0];
  const u32 right = is_lower ? words.word[3] : words.word[1];
  const u32 word = j % 16 >= 8 ? right : left;
  return j % 2 == 0 ? word & 0xFFFFu : word >> 16;
}

// The whole definition for one element; i and j count within the sequence.
HEED_DEVICE u32 DropoutNumber(u64 seed, u64 offset, u32 head_index, u32 i, u32 j) {
  const DropoutStream stream = MakeDropoutStream(seed, offset);
  return NumberInPatch(DropoutWords(stream, head_index, PatchOf(i, j)), i, j);
}

}  // namespace heed::device

#endif  // HEED_DEVICE_DROPOUT_H_
