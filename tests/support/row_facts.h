// What the error bounds of support/tolerance.h need to know about each output row of a case.
#ifndef HEED_TESTS_SUPPORT_ROW_FACTS_H_
#define HEED_TESTS_SUPPORT_ROW_FACTS_H_

#include <cstdint>
#include <vector>

#include "support/forward_instance.h"
#include "support/tolerance.h"

namespace heed::test {

// Slots that hold NaN or an infinity are left out of the maxima.
class RowFactsTable {
 public:
  explicit RowFactsTable(const ForwardInstance& instance);
  // expected_lse: the oracle's, may be infinite or NaN.
  ForwardFacts Row(std::int64_t b, std::int64_t head, std::int64_t row, double expected_lse) const;

 private:
  // Maxima over the keys of one KV head of one sequence.
  struct KeyMaxima {
    double key_norm = 0.0;
    double abs_value = 0.0;
  };
  KeyMaxima FindKeyMaxima(std::int64_t b, std::int64_t kv_head) const;
  double LargestAdded(std::int64_t b, std::int64_t head, std::int64_t row) const;
  std::size_t KeyMaximaIndex(std::int64_t b, std::int64_t kv_head) const;

  const ForwardInstance& instance_;
  const ForwardCase& case_;
  std::vector<KeyMaxima> key_maxima_;  // [b, kv_head]
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_ROW_FACTS_H_
