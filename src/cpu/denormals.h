// Subnormal numbers flushed to zero for the life of the object, on this thread only: one subnormal
// operand costs some CPUs more than a hundred cycles, and softmax makes many.
#ifndef HEED_CPU_DENORMALS_H_
#define HEED_CPU_DENORMALS_H_

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace heed::cpu {

class FlushDenormals {
 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

#if defined(__SSE2__)
  FlushDenormals() : saved_(_mm_getcsr()) {
    constexpr std::uint32_t kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
    _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
  }
  ~FlushDenormals() { _mm_setcsr(saved_); }

 private:
  std::uint32_t saved_;
#elif defined(__aarch64__)
  FlushDenormals() {
    constexpr std::uint64_t kFlushToZero = 1u << 24;
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(saved_ | kFlushToZero));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  std::uint64_t saved_;
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
};

}  // namespace heed::cpu

#endif  // HEED_CPU_DENORMALS_H_
