// A decode problem as numbers. Generated from an index, which is all that reruns it.
#ifndef HEED_TESTS_DECODE_DECODE_CASE_H_
#define HEED_TESTS_DECODE_DECODE_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "support/element.h"

namespace heed::test {

struct DecodeCase {
  std::uint64_t index = 0;
  Element element = Element::kF32;
  heed_kv_format_t format = HEED_KV_PLAIN;
  heed_kv_layout_t layout = HEED_KV_LAYOUT_ROWS;
  std::int64_t batch = 1, num_kv_heads = 1, group = 1, new_tokens = 1;
  std::int64_t head_dim = 64, head_dim_v = 64;
  std::int64_t k_groups = 1, v_groups = 1;  // of scales
  std::int64_t slots = 64;                  // of a contiguous cache
  std::int64_t page_slots = 0;              // 0 = contiguous
  std::vector<std::int32_t> lengths;        // without the new tokens
  std::vector<std::int32_t> leftpad;        // empty = none
  bool has_batch_index = false;
  bool appends = true;
  bool is_head_major = false;  // physical [page, head, slot, dim]
  std::int64_t rotary_pairs = 0;
  heed_rotary_layout_t rotary_layout = HEED_ROTARY_INTERLEAVED;
  std::int32_t num_splits = 0;
  bool fixed_split = false;
  heed_causal_t causal = HEED_CAUSAL_OFF;
  heed_alignment_t alignment = HEED_ALIGN_BOTTOM_RIGHT;
  std::int64_t window_left = -1, window_right = -1;
  double scale = 0.0;  // 0 = default
  double softcap = 0.0;
  bool has_alibi = false, has_bias = false, has_mask = false, has_sinks = false;
  double dropout = 0.0;

  std::int64_t num_q_heads() const { return num_kv_heads * group; }
  std::int64_t TotalKeys(std::int64_t b) const {
    return lengths[static_cast<std::size_t>(b)] + (appends ? new_tokens : 0);
  }
  std::int64_t LongestKeys() const;
  bool IsQuantised() const { return format != HEED_KV_PLAIN; }
  bool HasScales() const { return IsQuantised() && format < HEED_KV_Q8_0; }
  std::int64_t PayloadElems(std::int64_t dim) const;
};

DecodeCase GenerateDecodeCase(std::uint64_t index);
std::string Describe(const DecodeCase& decode_case);

}  // namespace heed::test

#endif  // HEED_TESTS_DECODE_DECODE_CASE_H_
