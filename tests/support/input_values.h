// Distributions of the generated inputs.
#ifndef HEED_TESTS_SUPPORT_INPUT_VALUES_H_
#define HEED_TESTS_SUPPORT_INPUT_VALUES_H_

#include <cstdint>

#include "support/forward_case.h"
#include "support/random.h"

namespace heed::test {

double DrawQuery(const ForwardCase& forward_case, Random& random);
double DrawKey(const ForwardCase& forward_case, std::int64_t token, Random& random);
double DrawValue(const ForwardCase& forward_case, Random& random);

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_INPUT_VALUES_H_
