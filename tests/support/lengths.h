// Sequence lengths of a case, and which keys each query sees: written from the contract, apart
// from the library's mask code.
#ifndef HEED_TESTS_SUPPORT_LENGTHS_H_
#define HEED_TESTS_SUPPORT_LENGTHS_H_

#include <cstdint>
#include <vector>

#include "support/forward_case.h"

namespace heed::test {

struct SequenceLengths {
  std::int64_t q_begin = 0;  // first packed row; 0 when dense
  std::int64_t q_slots = 0;
  std::int64_t q_len = 0;  // rows that take part
  std::int64_t kv_begin = 0;
  std::int64_t kv_slots = 0;
  std::int64_t kv_len = 0;
};

struct Lengths {
  std::vector<SequenceLengths> sequences;
  std::int64_t total_q_rows = 0;  // packed tensors: rows before, between and after sequences too
  std::int64_t total_kv_rows = 0;
};

Lengths MakeLengths(const ForwardCase& forward_case);

// By causal rule and window; a mask tensor comes on top.
bool InsideWindow(const ForwardCase& forward_case, const SequenceLengths& sequence,
                  std::int64_t query, std::int64_t key);

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_LENGTHS_H_
