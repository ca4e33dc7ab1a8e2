// What a stored choice of a kernel row is for: the facts of a problem that decide which row is
// fastest, lengths and counts rounded down so that similar problems share a choice.
#ifndef HEED_CORE_TUNE_PROBLEM_CLASS_H_
#define HEED_CORE_TUNE_PROBLEM_CLASS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/problem.h"
#include "core/registry.h"

namespace heed::core::tune {

// Numbers of a class, in the order of its text. docs/tune.md says which are rounded.
enum class Number : std::uint8_t {
  kHeadDim,
  kHeadDimV,
  kHeads,  // batch x query heads
  kGroup,
  kQueries,
  kKeys,
  kRows,   // of packed queries in all; 0 when dense
  kLeft,   // window; -1 = unlimited
  kRight,  // likewise; 0 when causal
  kPageSlots,
  kThreads  // CPU workers; 0 on a GPU
};
inline constexpr std::size_t kNumNumbers = 11;

struct ProblemClass {
  Op op = Op::kForward;
  DType dtype = DType::kInvalid;
  std::uint32_t features = 0;  // bits in the order of the names in problem_class.cc
  std::array<std::int64_t, kNumNumbers> numbers = {};

  bool operator==(const ProblemClass&) const = default;
};

struct HashOfClass {
  std::size_t operator()(const ProblemClass& problem) const;
};

// num_threads: CPU workers that the call may use, 0 on a GPU.
ProblemClass ClassOf(const ForwardProblem& problem, std::int64_t num_threads);
ProblemClass ClassOf(const BackwardProblem& problem, std::int64_t num_threads);

// x with all but its three highest bits cleared: x / 1.25 < result <= x.
std::int64_t RoundDown(std::int64_t x);

// "forward bf16 d=128 dv=128 heads=16 ... with=lse+aligned", and back. False when it is none.
std::string ClassText(const ProblemClass& problem);
bool ParseClass(std::string_view text, ProblemClass* problem);

}  // namespace heed::core::tune

#endif  // HEED_CORE_TUNE_PROBLEM_CLASS_H_
