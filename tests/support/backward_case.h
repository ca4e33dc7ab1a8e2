// One generated backward problem: a forward case and the gradients asked for, named by an id that
// re-creates it completely.
#ifndef HEED_TESTS_SUPPORT_BACKWARD_CASE_H_
#define HEED_TESTS_SUPPORT_BACKWARD_CASE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "support/forward_case.h"

namespace heed::test {

struct BackwardCase {
  // Has lse, and values whose scores fp32 can tell apart: see WhyNoBackward().
  ForwardCase forward;
  bool d_lse = false;
  bool d_sinks = false;           // needs sinks
  std::optional<Element> d_bias;  // needs a bias; f32 or the case's element type
  bool deterministic = false;
  // Slots inside the sequences that take no part (keys that no row sees, q, d_o and d_lse of rows
  // that see no key) hold poison instead of numbers. Slots past a length always do.
  bool dead_poison = false;

  bool operator==(const BackwardCase&) const = default;
};

// Empty when backward can be judged on this case; else what has no meaning there.
std::string WhyNoBackward(const BackwardCase& backward_case);

// The forward case's tokens after "bwd", then d-lse, d-sinks, d-bias-f32, deterministic,
// dead-poison: "bwd:b2:hq6:hkv2:sq37:skv130:d40:dv24:bf16:causal:sink:s12345:d-lse:d-sinks".
std::string FormatBackwardCaseId(const BackwardCase& backward_case);
// Empty for a text that is not an id; *error then says which token is wrong.
std::optional<BackwardCase> ParseBackwardCaseId(const std::string& id, std::string* error);

// Case number `index` of the endless sequence that `seed` names, with the cost of GenerateCase().
BackwardCase GenerateBackwardCase(std::uint64_t seed, std::uint64_t index, double max_cost);

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_BACKWARD_CASE_H_
