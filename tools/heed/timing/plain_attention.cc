#include "plain_attention.h"

#include <atomic>
#include <thread>
#include <vector>

namespace heed::tools {
namespace {

const PlainPasses& BestPasses() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return kPlainAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kPlainAvx2;
#endif
  return kPlainPortable;
}

// 32 register tiles: packing a panel of keys costs little beside multiplying by it.
constexpr std::int64_t kTaskRows = 192;

std::vector<PlainTask> MakeTasks(const ResolvedShape& shape) {
  std::vector<PlainTask> tasks;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.num_q_heads; ++head) {
      for (std::int64_t row = 0; row < shape.q_len; row += kTaskRows) {
        tasks.push_back({batch, head, row, std::min(row + kTaskRows, shape.q_len)});
      }
    }
  }
  return tasks;
}

// A whole pass ends before the next begins, so the matrix really goes through memory.
void RunPass(void (*pass)(const PlainProblem&, const PlainTask&), const PlainProblem& problem,
             const std::vector<PlainTask>& tasks, int num_threads) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < tasks.size(); i = next++) pass(problem, tasks[i]);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace

double PlainScoreBytes(const ResolvedShape& shape) {
  return static_cast<double>(sizeof(float)) * static_cast<double>(shape.batch) *
         static_cast<double>(shape.num_q_heads) * static_cast<double>(shape.q_len) *
         static_cast<double>(shape.kv_len);
}

void RunPlainAttention(const PlainProblem& problem, int num_threads) {
  const PlainPasses& passes = BestPasses();
  const std::vector<PlainTask> tasks = MakeTasks(problem.shape);
  for (const auto pass : {passes.scores, passes.softmax, passes.values}) {
    RunPass(pass, problem, tasks, num_threads);
  }
}

const char* PlainTargetName() { return BestPasses().target_name; }

}  // namespace heed::tools
