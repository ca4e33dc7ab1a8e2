// Seeded choice of problems. Lengths and head dims sit on and beside the tile edges of the kernels
// (12, 24, 48 query rows, 128 keys, 8 and 16 lanes), features are drawn independently.
#include <algorithm>
#include <string>

#include "support/forward_case.h"
#include "support/random.h"

namespace heed::test {
namespace {

std::int64_t PickLength(Random& random) {
  return random.Pick<std::int64_t>({0,  1,   2,   3,   5,   7,   8,   11,  12,  13,  16,  17,
                                    23, 24,  25,  31,  33,  47,  48,  49,  63,  64,  65,  95,
                                    97, 127, 128, 129, 130, 191, 255, 256, 257, 300, 385, 513});
}

std::int64_t PickHeadDim(Random& random) {
  return random.Pick<std::int64_t>({1,   2,   3,   5,   7,   8,   16,  24,  32,  33,
                                    40,  59,  64,  72,  80,  88,  96,  100, 111, 112,
                                    120, 128, 160, 192, 224, 255, 256, 320, 512, 576});
}

void PickShape(Random& random, ForwardCase* result) {
  result->element = random.Pick({Element::kF32, Element::kF16, Element::kBF16});
  result->batch = random.Pick<std::int64_t>({0, 1, 1, 1, 2, 2, 3, 5});
  result->num_kv_heads = random.Pick<std::int64_t>({1, 1, 1, 2, 3});
  result->num_q_heads =
      result->num_kv_heads * random.Pick<std::int64_t>({1, 1, 1, 2, 3, 4, 7, 8, 12});
  result->q_len = PickLength(random);
  result->kv_len = PickLength(random);
  if (random.Chance(0.25)) result->kv_len = result->q_len;
  result->head_dim = PickHeadDim(random);
  result->head_dim_v = random.Chance(0.6) ? result->head_dim : PickHeadDim(random);
}

double Cost(const ForwardCase& forward_case) {
  return static_cast<double>(forward_case.batch * forward_case.num_q_heads) *
         static_cast<double>(forward_case.q_len * forward_case.kv_len) *
         static_cast<double>(forward_case.head_dim + forward_case.head_dim_v);
}

void PickMasking(Random& random, ForwardCase* result) {
  result->causal = random.Chance(0.4);
  result->top_left = random.Chance(0.3);
  if (random.Chance(0.25)) {
    result->window_left = random.Pick<std::int64_t>({-1, 0, 1, 3, 16, 64, 127, 1000});
    result->window_right = random.Pick<std::int64_t>({-1, 0, 1, 2, 12, 64, 128, 1000});
  }
  if (random.Chance(0.25)) {
    result->mask.present = true;
    for (bool& axis : result->mask.has_axis) axis = random.Chance(0.6);
    result->mask.expanded = random.Chance(0.4);
    result->mask.element = random.Pick({Element::kBool, Element::kU8});
  }
}

void PickScoreRule(Random& random, ForwardCase* result) {
  if (random.Chance(0.25)) result->scale = random.Pick({0.0, -0.5, 1.0, 0.03125, 1e-30, 4.0});
  if (random.Chance(0.2)) result->softcap = random.Pick({0.5, 5.0, 20.0, 50.0});
  if (random.Chance(0.2)) result->alibi = random.Pick({Alibi::kPerHead, Alibi::kPerBatchHead});
  if (random.Chance(0.25)) {
    result->bias.present = true;
    for (bool& axis : result->bias.has_axis) axis = random.Chance(0.6);
    result->bias.expanded = random.Chance(0.4);
    result->bias.element = random.Chance(0.5) ? Element::kF32 : result->element;
    result->bias.infinities = random.Chance(0.3);
  }
  result->sinks = random.Chance(0.2);
  if (random.Chance(0.15)) result->dropout_p = random.Pick({0.1, 0.5, 0.9, 0.25});
}

void PickLengths(Random& random, ForwardCase* result) {
  result->packed_q = random.Chance(0.3);
  const bool paged = random.Chance(0.2);
  if (paged) {
    result->page_slots = random.Pick<std::int64_t>({1, 3, 16, 64, 100, 128, 256});
    result->seqused_kv = true;
  } else {
    result->packed_kv = result->packed_q ? random.Chance(0.85) : random.Chance(0.05);
    result->seqused_kv = random.Chance(0.2);
  }
  result->seqused_q = random.Chance(0.15);
}

void PickMemory(Random& random, ForwardCase* result) {
  if (random.Chance(0.5)) {
    result->layout =
        random.Pick({Layout::kHeadsFirst, Layout::kRowsFirst, Layout::kPadded, Layout::kSlicedHeads,
                     Layout::kBroadcast, Layout::kHugeSingleton});
  }
  if (random.Chance(0.5)) {
    result->values =
        random.Pick({Values::kLargeScores, Values::kGrowingScores, Values::kConstant, Values::kHuge,
                     Values::kTiny, Values::kSubnormal, Values::kOffsetV, Values::kNanKey});
  }
  result->fenced = random.Chance(0.3);
  result->no_lse = random.Chance(0.1);
  result->caller_workspace = random.Chance(0.5);
  result->num_threads = random.Pick<std::int32_t>({1, 1, 1, 2, 3});
}

}  // namespace

ForwardCase GenerateCase(std::uint64_t seed, std::uint64_t index, double max_cost) {
  Random random(seed, "case " + std::to_string(index));
  ForwardCase result;
  do {
    PickShape(random, &result);
  } while (Cost(result) > max_cost);
  PickMasking(random, &result);
  PickScoreRule(random, &result);
  PickLengths(random, &result);
  PickMemory(random, &result);
  // Whether a NaN score counts when dropout drops its key, or a bias of -inf hides it, is nobody's
  // promise.
  if (result.values == Values::kNanKey) {
    result.dropout_p = 0.0;
    result.bias.infinities = false;
  }
  result.seed = random.Bits() >> 40;
  return result;
}

}  // namespace heed::test
