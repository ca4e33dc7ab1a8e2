// What this machine can do at most: peak arithmetic rates and memory read bandwidth, measured by
// loops that do nothing else. Kernels are reported as a fraction of these, timed side by side.
//
//   if (const RoofLoop* roof = BestRoof(RoofKind::kFmaF32)) {
//     double flops = MeasureOpsPerSecond(*roof, 2, 0.01, Clock::kWall);
//   }
#ifndef HEED_BENCH_ROOF_ROOF_H_
#define HEED_BENCH_ROOF_ROOF_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace heed::bench {

enum class RoofKind : std::uint8_t {
  kFmaF32,   // fp32 multiply-add
  kDotBf16,  // bf16 pairs accumulated in fp32 by one instruction
  kDotI8     // int8 quadruples accumulated in int32
};

// One instruction sequence in several independent chains, so that its throughput is the only limit.
// A multiply and an add count as two operations.
struct RoofLoop {
  const char* name;  // "fma_f32.avx2"
  RoofKind kind;
  double ops_per_step;
  // With two vector units that each start such an instruction every cycle, or one matrix unit that
  // starts one every 16 cycles; 0 = not stated.
  double ops_per_cycle;
  void (*run)(std::int64_t num_steps);
};

// The widest loop that runs here, by CPUID; null when this CPU has no such instruction.
const RoofLoop* BestRoof(RoofKind kind);
// The other one where vectors and a matrix unit both have such an instruction: bf16's best is the
// unit's, int8's is that of the vectors, for which the bars are set. Null: there is no other.
const RoofLoop* OtherRoof(RoofKind kind);

// What a second is: of the wall, or of the thread's own CPU time, which stands still while the
// system gives the core to others. Time what is compared with the roof by the same clock.
enum class Clock : std::uint8_t { kWall, kThreadCpu };

// Sum over num_threads threads that run at the same time for about `seconds`, the caller being one.
double MeasureOpsPerSecond(const RoofLoop& roof, int num_threads, double seconds, Clock clock);

// Every byte of the pieces once, each thread a contiguous part of every piece, from the first start
// to the last end. What the call under test reads is to be read here too: other memory may lie in a
// cache. Requires: the wall's clock for more than one thread.
double MeasureReadBytesPerSecond(std::span<const std::span<const std::uint8_t>> pieces,
                                 int num_threads, Clock clock);

// Core clock under load, from a chain of dependent multiplications of known latency; 0 where there
// is no loop.
double MeasureClockHz(double seconds);

}  // namespace heed::bench

#endif  // HEED_BENCH_ROOF_ROOF_H_
