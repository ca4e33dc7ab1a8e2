// 16-bit element types as raw bits, so that loads and stores overload on the type.
#ifndef HEED_CPU_ELEMENT_H_
#define HEED_CPU_ELEMENT_H_

#include <cstdint>

namespace heed::cpu {

struct Half {
  std::uint16_t bits;
};

struct Bfloat {
  std::uint16_t bits;
};

static_assert(sizeof(Half) == 2 && sizeof(Bfloat) == 2);

}  // namespace heed::cpu

#endif  // HEED_CPU_ELEMENT_H_
