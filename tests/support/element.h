// Element types of test tensors with exact conversions, written apart from the library's own.
#ifndef HEED_TESTS_SUPPORT_ELEMENT_H_
#define HEED_TESTS_SUPPORT_ELEMENT_H_

#include <cstddef>
#include <cstdint>

#include "heed/heed.h"

namespace heed::test {

enum class Element : std::uint8_t { kF64, kF32, kF16, kBF16, kU8, kBool, kI32 };

std::size_t ElementBytes(Element element);
heed_dtype_t ElementToAbi(Element element);
const char* ElementName(Element element);  // "f32", "bf16", ...

// Value of the element at `source`; exact.
double LoadElement(Element element, const void* source);
// Rounds to nearest, ties to even; beyond the range gives an infinity.
void StoreElement(Element element, void* target, double value);
// What StoreElement followed by LoadElement gives.
double RoundToElement(Element element, double value);

// Bits for slots that must have no influence.
enum class Poison : std::uint8_t {
  kNaN,               // all bits set: a quiet NaN in every floating type, -1 as int32
  kSignallingNaN,     // integers: their largest value
  kPositiveInfinity,  // integers: their largest value
  kNegativeInfinity   // integers: their smallest value
};

void StorePoison(Element element, void* target, Poison poison);

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_ELEMENT_H_
