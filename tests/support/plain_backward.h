// The backward pass as plain loops on the host: in fp32 with P and dS rounded to the element type
// just where a matrix-unit kernel rounds them, or in double; right, or with one planted fault.
#ifndef HEED_TESTS_SUPPORT_PLAIN_BACKWARD_H_
#define HEED_TESTS_SUPPORT_PLAIN_BACKWARD_H_

#include <cstdint>
#include <string>

#include "support/backward_checker.h"
#include "support/backward_instance.h"

namespace heed::test {

enum class BackwardFault : std::uint8_t {
  kNone,
  kDeltaLeftOut,           // dS = P (dP + d_lse)
  kKeyBlockLeftOutOfDq,    // keys 16 to 31 add nothing to dq
  kQueryBlockLeftOut,      // rows 16 to 31 add nothing to dk and dv
  kMaskOffByOne,           // a row also sees the key after each that it sees
  kSinkLeftOut,            // P is normalised without the sink
  kDropoutFactorLeftOut,   // kept weights are not multiplied by 1 / (1 - p)
  kLseGradientSign,        // d_lse is subtracted
  kHiddenByMultiplying,    // P = 0 times what hidden slots hold, instead of skipping them
  kGroupHeadsNotSummed,    // dk and dv of the last head of a group only
  kScaleLeftOutOfDk,       // dk without the scale
  kSoftcapSlopeLeftOut,    // dS passes the softcap unchanged
  kBiasGradientOfOneBatch  // d_bias gets the last sequence's part only
};

enum class PlainPrecision : std::uint8_t { kDouble, kFp32WithRoundedElements };

// Fills the gradients of `instance`, reading o and lse as they are stored.
void RunPlainBackward(const BackwardInstance& instance, PlainPrecision precision,
                      BackwardFault fault = BackwardFault::kNone);

// The same as a kernel under test; `instance` outlives it and is the one that is checked.
BackwardEngine PlainBackwardEngine(const BackwardInstance& instance, PlainPrecision precision,
                                   BackwardFault fault = BackwardFault::kNone);

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_PLAIN_BACKWARD_H_
