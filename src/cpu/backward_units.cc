#include "cpu/backward_units.h"

#include <algorithm>

namespace heed::cpu {

BackwardUnit UnitAt(const BackwardUnits& units, std::int64_t num_workers, std::int64_t task) {
  const std::int64_t num_heads = units.num_batches * units.num_heads;
  const std::int64_t num_groups = std::max<std::int64_t>(1, num_heads / num_workers);
  // The first groups have a head more, where heads do not divide evenly.
  const std::int64_t heads_of_smaller = num_heads / num_groups;
  const std::int64_t num_larger = num_heads % num_groups;
  const std::int64_t heads_in_larger = num_larger * (heads_of_smaller + 1);
  const bool is_larger = task < heads_in_larger * units.num_spans;
  const std::int64_t heads = heads_of_smaller + (is_larger ? 1 : 0);
  const std::int64_t first_head = is_larger ? 0 : heads_in_larger;
  const std::int64_t at = task - first_head * units.num_spans;
  const std::int64_t group = at / (heads * units.num_spans),
                     in_group = at % (heads * units.num_spans);
  return {first_head + group * heads + in_group % heads, in_group / heads};
}

}  // namespace heed::cpu
