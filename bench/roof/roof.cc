#include "roof.h"

#include <time.h>
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "loops.h"

namespace heed::bench {
namespace {

double Now(Clock clock) {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  if (clock == Clock::kThreadCpu) {
    struct timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
#endif
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Amount of work per second of a piece repeated until `seconds` have passed.
template <class Piece>
double RepeatFor(double seconds, Clock clock, double work_per_piece, const Piece& piece) {
  const double start = Now(clock);
  double work = 0.0, elapsed = 0.0;
  do {
    piece();
    work += work_per_piece;
    elapsed = Now(clock) - start;
  } while (elapsed < seconds);
  return work / elapsed;
}

// Sum of body(thread)'s results, all threads starting together.
double SumOverThreads(int num_threads, const std::function<double(int)>& body) {
  std::atomic<int> num_waiting = num_threads;
  std::vector<double> results(static_cast<std::size_t>(num_threads));
  const auto run = [&](int thread) {
    --num_waiting;
    while (num_waiting > 0) std::this_thread::yield();
    results[static_cast<std::size_t>(thread)] = body(thread);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others) other.join();
  double sum = 0.0;
  for (const double result : results) sum += result;
  return sum;
}

// About 60 microseconds at 12 chains and 3.4 GHz: long beside reading the clock (up to half a
// microsecond), short beside a measurement.
constexpr std::int64_t kStepsPerPiece = 32768;

// Whether this process may use the AMX registers, which Linux grants on request.
bool HasAmx() {
#if defined(__x86_64__) && defined(__linux__)
  static const bool has_amx = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned kTileInt8Bf16 = 1u << 24 | 1u << 25 | 1u << 22;
    constexpr long kRequestPermission = 0x1023, kAmxRegisters = 18;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
           (edx & kTileInt8Bf16) == kTileInt8Bf16 &&
           syscall(SYS_arch_prctl, kRequestPermission, kAmxRegisters) == 0;
  }();
  return has_amx;
#else
  return false;
#endif
}

}  // namespace

const RoofLoop* BestRoof(RoofKind kind) {
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0;
  switch (kind) {
    case RoofKind::kFmaF32:
      if (has_avx512) return &kFmaF32Avx512;
      if (has_avx2) return &kFmaF32Avx2;
      break;
    case RoofKind::kDotBf16:
      if (HasAmx()) return &kDotBf16Amx;
      if (has_avx512 && __builtin_cpu_supports("avx512bf16")) return &kDotBf16Avx512;
      break;
    case RoofKind::kDotI8:
      if (has_avx512 && __builtin_cpu_supports("avx512vnni")) return &kDotI8Avx512;
      if (has_avx2) return &kDotI8Avx2;
      break;
  }
#endif
  return kind == RoofKind::kFmaF32 ? &kFmaF32Portable : nullptr;
}

const RoofLoop* OtherRoof(RoofKind kind) {
#if defined(__x86_64__)
  if (HasAmx()) {
    if (kind == RoofKind::kDotBf16 && __builtin_cpu_supports("avx512bf16")) return &kDotBf16Avx512;
    if (kind == RoofKind::kDotI8) return &kDotI8Amx;
  }
#endif
  static_cast<void>(kind);
  return nullptr;
}

double MeasureOpsPerSecond(const RoofLoop& roof, int num_threads, double seconds, Clock clock) {
  return SumOverThreads(num_threads, [&](int) {
    return RepeatFor(seconds, clock, roof.ops_per_step * static_cast<double>(kStepsPerPiece),
                     [&] { roof.run(kStepsPerPiece); });
  });
}

double MeasureReadBytesPerSecond(std::span<const std::span<const std::uint8_t>> pieces,
                                 int num_threads, Clock clock) {
  constexpr std::size_t kLineBytes = 64, kAheadBytes = 4096;
  const auto count = static_cast<std::size_t>(num_threads);
  std::vector<double> starts(count), ends(count);
  const double num_bytes = SumOverThreads(num_threads, [&](int number) {
    const auto thread = static_cast<std::size_t>(number);
    double bytes_read = 0.0;
    std::uint64_t sum = 0;
    starts[thread] = Now(clock);
    for (const std::span<const std::uint8_t> piece : pieces) {
      const std::size_t num_lines = piece.size() / kLineBytes;
      const std::uint8_t* line = piece.data() + num_lines * thread / count * kLineBytes;
      const std::uint8_t* const end = piece.data() + num_lines * (thread + 1) / count * kLineBytes;
      bytes_read += static_cast<double>(end - line);
      for (; line < end; line += kLineBytes) {
        // A page ahead, where hardware prefetchers stop.
        __builtin_prefetch(line + kAheadBytes, 0, 2);
        std::uint64_t words[kLineBytes / sizeof(std::uint64_t)];
        std::memcpy(words, line, sizeof(words));
        for (const std::uint64_t word : words) sum += word;
      }
    }
    asm volatile("" : : "r"(sum) : "memory");
    ends[thread] = Now(clock);
    return bytes_read;
  });
  return num_bytes / (*std::max_element(ends.begin(), ends.end()) -
                      *std::min_element(starts.begin(), starts.end()));
}

double MeasureClockHz(double seconds) {
#if defined(__x86_64__)
  // Additions would not do: Golden Cove folds those of small constants while renaming. A 64-bit
  // multiplication takes 3 cycles on every core of Intel since 2008 and of AMD since Zen.
  constexpr int kProductsPerPiece = 30000;
  constexpr double kCyclesPerPiece = 3.0 * kProductsPerPiece;
  return RepeatFor(seconds, Clock::kThreadCpu, kCyclesPerPiece, [] {
    std::uint64_t x = 3;
    for (int i = 0; i < kProductsPerPiece / 10; ++i) {
      asm volatile(
          "imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\t"
          "imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0"
          : "+r"(x));
    }
  });
#else
  static_cast<void>(seconds);
  return 0.0;
#endif
}

}  // namespace heed::bench
