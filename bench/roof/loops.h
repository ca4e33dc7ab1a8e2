// Tables of the loops of each translation unit; each unit is compiled for its own instruction set.
#ifndef HEED_BENCH_ROOF_LOOPS_H_
#define HEED_BENCH_ROOF_LOOPS_H_

#include "roof.h"

namespace heed::bench {

extern const RoofLoop kFmaF32Portable;
#if defined(__x86_64__)
extern const RoofLoop kFmaF32Avx2;
extern const RoofLoop kDotI8Avx2;
extern const RoofLoop kFmaF32Avx512;
extern const RoofLoop kDotBf16Avx512;
extern const RoofLoop kDotI8Avx512;
extern const RoofLoop kDotBf16Amx;
extern const RoofLoop kDotI8Amx;
#endif

}  // namespace heed::bench

#endif  // HEED_BENCH_ROOF_LOOPS_H_
