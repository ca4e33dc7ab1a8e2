// One generated forward problem, named by an id that re-creates it completely.
#ifndef HEED_TESTS_SUPPORT_FORWARD_CASE_H_
#define HEED_TESTS_SUPPORT_FORWARD_CASE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "support/element.h"

namespace heed::test {

// How q, k, v, o and the score tensors lie in memory.
enum class Layout : std::uint8_t {
  kCompact,
  kHeadsFirst,    // memory order [B,H,S,D]
  kRowsFirst,     // memory order [S,B,H,D]
  kPadded,        // rows, heads and batches followed by unused elements
  kSlicedHeads,   // a slice of a tensor with more heads, as in a fused qkv projection
  kBroadcast,     // inputs repeat over batch and heads by stride 0
  kHugeSingleton  // size-1 axes carry absurd strides
};

// Distribution of the inputs.
enum class Values : std::uint8_t {
  kNormal,
  kLargeScores,    // score deviation about 30: the maximum moves often
  kGrowingScores,  // every later key scores higher: the maximum moves at every step
  kConstant,       // all scores equal
  kHuge,           // magnitudes near the top of the type's range
  kTiny,           // magnitudes near the bottom of the normal range
  kSubnormal,      // V below the normal range
  kOffsetV,        // V = 100 + small: cancellation shows
  kNanKey          // one visible K row is NaN: its viewers give NaN, other rows numbers
};

// Which axes of [B,Hq,Sq,Skv] a bias or mask really has.
struct ScorePattern {
  bool present = false;
  std::array<bool, 4> has_axis = {true, true, true, true};
  bool expanded = false;            // missing axes have full size and stride 0, instead of size 1
  Element element = Element::kF32;  // bias: f32 or the case's; mask: bool or u8
  bool infinities = false;          // bias: some entries are -inf

  bool operator==(const ScorePattern&) const = default;
};

enum class Alibi : std::uint8_t { kOff, kPerHead, kPerBatchHead };

struct ForwardCase {
  std::int64_t batch = 1;
  std::int64_t num_q_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t q_len = 1;  // longest sequence when packed
  std::int64_t kv_len = 1;
  std::int64_t head_dim = 1;
  std::int64_t head_dim_v = 1;
  Element element = Element::kF32;

  bool causal = false;
  bool top_left = false;
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;
  std::optional<double> scale;
  double softcap = 0.0;
  Alibi alibi = Alibi::kOff;
  ScorePattern bias;
  ScorePattern mask;
  bool sinks = false;
  double dropout_p = 0.0;

  bool packed_q = false;  // cu_seqlens_q
  bool packed_kv = false;
  bool seqused_q = false;
  bool seqused_kv = false;
  std::int64_t page_slots = 0;  // 0 = not paged; paged implies seqused_kv

  Layout layout = Layout::kCompact;
  Values values = Values::kNormal;
  bool fenced = false;  // buffers end at an inaccessible page
  bool no_lse = false;
  bool finite_values = false;     // V of keys inside the sequences that no row sees holds numbers
  bool caller_workspace = false;  // full of NaN, between guard bands
  std::int32_t num_threads = 1;
  std::uint64_t seed = 0;

  bool operator==(const ForwardCase&) const = default;
};

// Tokens joined by ':', defaults left out, for example
// "fwd:b2:hq6:hkv2:sq37:skv130:d40:dv24:bf16:causal:win-1,3:cap20:alibi-h:bias-1h1k:s12345".
std::string FormatCaseId(const ForwardCase& forward_case);
// Empty for a text that is not an id; *error then says which token is wrong.
std::optional<ForwardCase> ParseCaseId(const std::string& id, std::string* error);

// Case number `index` of the endless sequence that `seed` names. Its cost in multiply-adds,
// B * Hq * Sq * Skv * (D + Dv), is at most max_cost.
ForwardCase GenerateCase(std::uint64_t seed, std::uint64_t index, double max_cost);

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_FORWARD_CASE_H_
