// The order in which backward hands out heads and spans of blocks.
#include "cpu/backward_units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace heed::test {
namespace {

void CheckOrder(const cpu::BackwardUnits& units, std::int64_t num_workers) {
  SCOPED_TRACE(testing::Message() << units.num_batches << " x " << units.num_heads << " heads, "
                                  << units.num_spans << " spans, " << num_workers << " workers");
  const std::int64_t num_heads = units.num_batches * units.num_heads;
  std::vector<std::int64_t> next_span(static_cast<std::size_t>(num_heads), 0);
  std::int64_t num_open = 0, most_open = 0;  // heads that have begun and not ended
  for (std::int64_t task = 0; task < num_heads * units.num_spans; ++task) {
    const cpu::BackwardUnit unit = cpu::UnitAt(units, num_workers, task);
    ASSERT_GE(unit.head_of_batch, 0);
    ASSERT_LT(unit.head_of_batch, num_heads);
    std::int64_t& next = next_span[static_cast<std::size_t>(unit.head_of_batch)];
    ASSERT_EQ(unit.span, next) << "a span of dQ waits for the one before it";
    num_open += next == 0 ? 1 : 0;
    most_open = std::max(most_open, num_open);
    ++next;
    num_open -= next == units.num_spans ? 1 : 0;
  }
  for (const std::int64_t spans : next_span) EXPECT_EQ(spans, units.num_spans);
  if (num_heads >= num_workers) {
    EXPECT_LT(most_open, 2 * num_workers);
    EXPECT_GE(most_open, units.num_spans > 1 ? num_workers : 0);
  }
}

TEST(BackwardUnits, EverySpanOnceInOrderAndFewHeadsAtATime) {
  for (const std::int64_t batch : {1, 3}) {
    for (const std::int64_t head : {1, 2, 7, 8}) {
      for (const std::int64_t spans : {1, 2, 5}) {
        for (const std::int64_t num_workers : {1, 2, 3, 5, 16}) {
          CheckOrder({batch, head, spans, 1, spans}, num_workers);
        }
      }
    }
  }
}

}  // namespace
}  // namespace heed::test
