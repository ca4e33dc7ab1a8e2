// Which keys a query may see: causal, sliding window, lengths, and the ALiBi distance.
// The one place for this arithmetic on every backend.
#ifndef HEED_DEVICE_MASK_H_
#define HEED_DEVICE_MASK_H_

#include "device/prelude.h"

namespace heed::device {

enum class Alignment : i32 { kBottomRight = 0, kTopLeft = 1 };

inline constexpr i64 kUnlimited = -1;

// Bounds are in keys around the query's own position i + shift; both inclusive. Causal is right =
// 0.
struct WindowRule {
  i64 left = kUnlimited;
  i64 right = kUnlimited;
  Alignment alignment = Alignment::kBottomRight;
};

// Half-open range of key indices; empty when end <= begin.
struct KeyRange {
  i64 begin = 0;
  i64 end = 0;
};

// Position of query 0 on the key axis.
HEED_DEVICE i64 PositionShift(Alignment alignment, i64 q_len, i64 kv_len) {
  return alignment == Alignment::kBottomRight ? kv_len - q_len : 0;
}

// Keys that query `q_index` of a sequence (q_len queries, kv_len keys) may see.
// Window bounds near the i64 maximum act as unlimited instead of overflowing.
HEED_DEVICE KeyRange VisibleKeys(const WindowRule& rule, i64 q_index, i64 q_len, i64 kv_len) {
  const i64 position = q_index + PositionShift(rule.alignment, q_len, kv_len);
  KeyRange range{0, kv_len};
  if (rule.left >= 0 && rule.left < position) range.begin = position - rule.left;
  // position + right + 1 < kv_len, written so that no intermediate overflows.
  if (rule.right >= 0 && rule.right < kv_len - 1 - position) range.end = position + rule.right + 1;
  range.begin = Clamp<i64>(range.begin, 0, kv_len);
  range.end = Clamp<i64>(range.end, range.begin, kv_len);
  return range;
}

// Whether query i sees key j depends on j - i alone: low <= j - i <= high, both within their
// lengths. Bounds stay within [-q_len, kv_len], outside of which no pair lies.
struct Diagonals {
  i64 low = 0;
  i64 high = 0;
};

HEED_DEVICE Diagonals VisibleDiagonals(const WindowRule& rule, i64 q_len, i64 kv_len) {
  const i64 shift = PositionShift(rule.alignment, q_len, kv_len);
  Diagonals diagonals{-q_len, kv_len};
  // shift + q_len and kv_len - shift are lengths: no intermediate overflows.
  if (rule.left >= 0 && rule.left < shift + q_len) diagonals.low = shift - rule.left;
  if (rule.right >= 0 && rule.right < kv_len - shift) diagonals.high = shift + rule.right;
  return diagonals;
}

// ALiBi term added to a score: -slope * |position - key|.
HEED_DEVICE float AlibiBias(float slope, i64 position, i64 key_index) {
  const i64 distance = position < key_index ? key_index - position : position - key_index;
  return -slope * static_cast<float>(distance);
}

}  // namespace heed::device

#endif  // HEED_DEVICE_MASK_H_
