// The loop body shared by all instruction sets. Compiled once per translation unit, hence the
// unnamed namespace.
#ifndef HEED_BENCH_ROOF_CHAINS_INL_H_
#define HEED_BENCH_ROOF_CHAINS_INL_H_

#include <cstdint>
#include <utility>

namespace heed::bench {
namespace {

// num_steps times: one Step::Apply on each of the chains. Two units of latency 4 or 5 need at least
// 10 chains; the most that fit in the register file beside the operands are used. Indices are
// constants, so that every chain lives in a register.
template <class Step, std::size_t... kChain>
void RunChains(std::int64_t num_steps, std::index_sequence<kChain...>) {
  using Vector = typename Step::Vector;
  const Step step;
  Vector chains[] = {Step::Start(kChain)...};
  for (std::int64_t i = 0; i < num_steps; ++i) {
    ((chains[kChain] = step.Apply(chains[kChain])), ...);
  }
  // Keeps the results, and with them the loop.
  (([&] { asm volatile("" : : "x"(chains[kChain])); }()), ...);
}

template <class Step>
void Run(std::int64_t num_steps) {
  RunChains<Step>(num_steps, std::make_index_sequence<Step::kNumChains>());
}

}  // namespace
}  // namespace heed::bench

#endif  // HEED_BENCH_ROOF_CHAINS_INL_H_
