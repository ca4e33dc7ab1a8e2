#include "decode/decode_case.h"

#include <algorithm>
#include <sstream>

#include "support/random.h"

namespace heed::test {
namespace {

constexpr std::int64_t kDims[] = {4, 8, 16, 17, 32, 40, 64, 64, 80, 96, 128, 128, 192};

std::int64_t PickGroups(Random& random, std::int64_t head_dim) {
  if (random.Chance(0.6)) return 1;
  const std::int64_t groups = random.Pick({2, 4, 8});
  return head_dim % groups == 0 ? groups : 1;
}

void PickLengths(Random& random, DecodeCase* out) {
  const std::int64_t longest = random.Pick({1, 20, 130, 300, 700, 1500});
  std::int64_t most = out->new_tokens;
  for (std::int64_t b = 0; b < out->batch; ++b) {
    const bool is_empty = random.Chance(0.1);
    out->lengths.push_back(is_empty ? 0 : static_cast<std::int32_t>(random.Below(longest + 1)));
    most = std::max(most, out->TotalKeys(b));
  }
  const std::int64_t unit = out->layout == HEED_KV_LAYOUT_INTERLEAVED ? 16 : 1;
  if (random.Chance(0.4)) {
    out->page_slots = unit * random.Pick({1, 1, 2, 3, 16, 21});
  } else {
    out->slots = (most + random.Below(40) + unit) / unit * unit;
    out->has_batch_index = random.Chance(0.4);
  }
  if (!random.Chance(0.25)) return;
  for (const std::int32_t length : out->lengths) {
    out->leftpad.push_back(static_cast<std::int32_t>(random.Below(length + 1)));
  }
}

void PickRule(Random& random, DecodeCase* out) {
  if (random.Chance(0.6)) out->causal = HEED_CAUSAL_ON;
  if (random.Chance(0.15)) out->alignment = HEED_ALIGN_TOP_LEFT;
  if (random.Chance(0.25)) out->window_left = random.Below(200);
  if (random.Chance(0.1)) out->window_right = random.Below(50);
  if (random.Chance(0.1)) out->scale = random.Pick({-0.3, 0.05, 1.0});
  if (random.Chance(0.15)) out->softcap = random.Pick({3.0, 30.0});
  out->has_alibi = random.Chance(0.1);
  out->has_bias = random.Chance(0.1);
  out->has_mask = random.Chance(0.1);
  out->has_sinks = random.Chance(0.2);
  if (random.Chance(0.07)) out->dropout = 0.25;
}

}  // namespace

std::int64_t DecodeCase::LongestKeys() const {
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < batch; ++b) longest = std::max(longest, TotalKeys(b));
  return longest;
}

std::int64_t DecodeCase::PayloadElems(std::int64_t dim) const {
  const std::int64_t blocks = (dim + 31) / 32;
  if (format == HEED_KV_INT4) return (dim + 1) / 2;
  if (format == HEED_KV_Q8_0) return blocks * 34;
  if (format == HEED_KV_Q4_0) return blocks * 18;
  return layout == HEED_KV_LAYOUT_INTERLEAVED ? (dim + 3) / 4 * 4 : dim;
}

DecodeCase GenerateDecodeCase(std::uint64_t index) {
  Random random(index, "decode case");
  DecodeCase out;
  out.index = index;
  out.element = random.Pick({Element::kF32, Element::kF16, Element::kBF16});
  out.format = random.Pick({HEED_KV_PLAIN, HEED_KV_PLAIN, HEED_KV_INT8, HEED_KV_INT8, HEED_KV_INT8,
                            HEED_KV_FP8_E4M3, HEED_KV_INT4, HEED_KV_Q8_0, HEED_KV_Q4_0});
  if (out.format == HEED_KV_INT8 && random.Chance(0.6)) out.layout = HEED_KV_LAYOUT_INTERLEAVED;
  out.batch = random.Pick({1, 1, 2, 4});
  out.num_kv_heads = random.Pick({1, 2, 3});
  out.group = random.Pick({1, 1, 2, 3, 4, 7, 8});
  out.new_tokens = random.Chance(0.6) ? 1 : random.Pick({2, 3, 8, 16, 40});
  out.head_dim = kDims[random.Below(static_cast<std::int64_t>(std::size(kDims)))];
  out.head_dim_v = random.Chance(0.8)
                       ? out.head_dim
                       : kDims[random.Below(static_cast<std::int64_t>(std::size(kDims)))];
  if (out.HasScales()) {
    out.k_groups = PickGroups(random, out.head_dim);
    out.v_groups = PickGroups(random, out.head_dim_v);
  }
  out.appends = random.Chance(0.7);
  out.is_head_major = random.Chance(0.4);
  PickLengths(random, &out);
  if (out.appends && random.Chance(0.5)) {
    out.rotary_pairs = random.Chance(0.5) ? out.head_dim / 2 : 1 + random.Below(out.head_dim / 2);
    out.rotary_layout = random.Pick({HEED_ROTARY_INTERLEAVED, HEED_ROTARY_HALF_SPLIT});
  }
  if (random.Chance(0.3)) out.num_splits = static_cast<std::int32_t>(1 + random.Below(9));
  out.fixed_split = random.Chance(0.3);
  PickRule(random, &out);
  return out;
}

std::string Describe(const DecodeCase& c) {
  constexpr const char* kFormats[] = {"plain", "int8", "fp8", "int4", "q8_0", "q4_0"};
  std::ostringstream text;
  text << "decode case " << c.index << " (HEED_DECODE_CASE=" << c.index
       << "): " << ElementName(c.element) << " " << kFormats[c.format]
       << (c.layout == HEED_KV_LAYOUT_INTERLEAVED ? " interleaved" : "") << " b" << c.batch
       << " hkv" << c.num_kv_heads << " g" << c.group << " new" << c.new_tokens << " d"
       << c.head_dim << " dv" << c.head_dim_v << " groups " << c.k_groups << "," << c.v_groups
       << " slots " << c.slots << " page " << c.page_slots << " longest " << c.LongestKeys()
       << (c.appends ? " appends" : "") << (c.leftpad.empty() ? "" : " leftpad")
       << (c.has_batch_index ? " index" : "") << " rotary " << c.rotary_pairs << " splits "
       << c.num_splits << " causal " << c.causal << " window " << c.window_left << ","
       << c.window_right << " align " << c.alignment << " cap " << c.softcap
       << (c.has_alibi ? " alibi" : "") << (c.has_bias ? " bias" : "")
       << (c.has_mask ? " mask" : "") << (c.has_sinks ? " sinks" : "") << " drop " << c.dropout;
  return text.str();
}

}  // namespace heed::test
