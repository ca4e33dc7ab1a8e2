// Fixed-width types and the function qualifier for code that the host compiler, nvcc-like run-time
// compilers and tests all compile. Includes nothing: NVRTC has no standard headers.
#ifndef HEED_DEVICE_PRELUDE_H_
#define HEED_DEVICE_PRELUDE_H_

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define HEED_DEVICE __host__ __device__ constexpr
#else
#define HEED_DEVICE constexpr
#endif

namespace heed::device {

using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8);

template <class T>
HEED_DEVICE T Min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
HEED_DEVICE T Max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
HEED_DEVICE T Clamp(T x, T low, T high) {
  return Min(Max(x, low), high);
}
// Smallest integer >= a / b, for a >= 0 and b > 0. Does not overflow near the type's maximum.
template <class T>
HEED_DEVICE T CeilDiv(T a, T b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace heed::device

#endif  // HEED_DEVICE_PRELUDE_H_
