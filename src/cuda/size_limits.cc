#include "cuda/size_limits.h"

#include <cinttypes>

namespace heed::cuda {
namespace {

constexpr std::int64_t kMaxRows = std::int64_t{1} << 40;
// Kernels count the rows of one sequence, rounded up to a tile, in 32 bits.
constexpr std::int64_t kMaxSequenceRows = (std::int64_t{1} << 31) - 1024;

core::Status CheckSide(const char* name, std::int64_t batch, std::int64_t num_heads,
                       std::int64_t longest_rows) {
  std::int64_t rows = 0;
  if (longest_rows > kMaxSequenceRows) {
    return core::Unsupported(core::Format("longest sequence of %s = %" PRId64
                                          ": a CUDA call takes at most %" PRId64 " rows",
                                          name, longest_rows, kMaxSequenceRows));
  }
  if (!__builtin_mul_overflow(batch, num_heads, &rows) &&
      !__builtin_mul_overflow(rows, longest_rows, &rows) && rows <= kMaxRows) {
    return {};
  }
  return core::Unsupported(core::Format("batch = %" PRId64 ", heads = %" PRId64
                                        ", longest sequence of %s = %" PRId64
                                        ": a CUDA call takes at most 2^40 rows",
                                        batch, num_heads, name, longest_rows));
}

}  // namespace

core::Status CheckSize(const core::ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  HEED_RETURN_IF_ERROR(CheckSide("q", shape.batch, shape.num_q_heads, shape.max_q_len));
  return CheckSide("k", shape.batch, shape.num_kv_heads, shape.max_kv_len);
}

}  // namespace heed::cuda
