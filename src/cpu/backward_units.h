// How the backward pass divides heads and blocks of keys into units of work, and their order.
#ifndef HEED_CPU_BACKWARD_UNITS_H_
#define HEED_CPU_BACKWARD_UNITS_H_

#include <cstdint>

namespace heed::cpu {

struct BackwardUnits {
  std::int64_t num_batches, num_heads;   // 1 = one unit takes all of the axis in order
  std::int64_t num_spans;                // of the blocks of a head
  std::int64_t span_blocks, num_blocks;  // of a span, of a head
};

struct BackwardUnit {
  std::int64_t head_of_batch;  // batch * num_heads + head
  std::int64_t span;
};

// Unit number `task` of num_batches * num_heads * num_spans. Heads go in groups of about as many
// as there are workers, one group after the other: what all heads read for every block would not
// stay in a cache. In a group spans run from the first one on, heads innermost: a unit that waits
// for dQ waits for one before it, which has begun and, with several heads, nearly ended.
BackwardUnit UnitAt(const BackwardUnits& units, std::int64_t num_workers, std::int64_t task);

}  // namespace heed::cpu

#endif  // HEED_CPU_BACKWARD_UNITS_H_
