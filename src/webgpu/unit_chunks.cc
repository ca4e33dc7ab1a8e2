#include "webgpu/unit_chunks.h"

#include <algorithm>
#include <cinttypes>
#include <limits>

#include "device/prelude.h"
#include "webgpu/unit_layout.h"

namespace heed::webgpu {
namespace {

constexpr std::int64_t kWordBytes = 4;
// Room in the table for the record, slopes and sinks of a unit and for its tasks.
constexpr std::int64_t kTableSpareWords = 512;

// Words of the largest binding of a chunk.
std::int64_t LargestBinding(const core::ForwardProblem& problem, UnitPass pass,
                            const UnitChunks& chunks) {
  const core::Shape& shape = problem.shape;
  const std::int64_t group_words = GroupWords(problem.dtype());
  const std::int64_t dims = device::CeilDiv<std::int64_t>(shape.head_dim, 4);
  const std::int64_t dims_v = device::CeilDiv<std::int64_t>(shape.head_dim_v, 4);
  const std::int64_t rows = chunks.queries * shape.group;
  // Partial outputs are in fp32 whatever the type.
  const std::int64_t o_group_words = chunks.has_partials ? 4 : group_words;
  std::int64_t words = std::max({rows * dims * group_words, rows * dims_v * o_group_words,
                                 chunks.keys * std::max(dims, dims_v) * group_words});
  if (pass != UnitPass::kForward) {
    // dq, dk, dv in fp32, dS, and two numbers per row in the table.
    std::int64_t gradients = 4 * (rows * dims + chunks.keys * (dims + dims_v));
    if (pass == UnitPass::kBackwardWithBias) gradients += rows * (chunks.keys + 3);
    words = std::max({words, gradients, rows * 2 + kTableSpareWords});
  }
  const auto score_rows = [&](const core::ScoreView& view) {
    return (view.stride_elems[1] != 0 ? shape.group : 1) *
           (view.stride_elems[2] != 0 ? chunks.queries : 1);
  };
  if (problem.score.bias.present()) {
    words = std::max(words, score_rows(problem.score.bias) * chunks.keys);
  }
  if (problem.score.mask.present()) {
    words = std::max(
        words, score_rows(problem.score.mask) * device::CeilDiv<std::int64_t>(chunks.keys, 32));
  }
  return words;
}

// Half rounds per key, and per query row, of the innermost loops: the shaders take 64 keys or rows
// at a time, 32 elements of a row in as many rounds.
struct LoopHalves {
  std::int64_t per_key = 0;
  std::int64_t per_row = 0;
};

LoopHalves LoopHalvesOf(const core::Shape& shape, UnitPass pass) {
  const std::int64_t slices = device::CeilDiv<std::int64_t>(shape.head_dim, 32);
  if (pass == UnitPass::kForward) return {slices + 2, 0};
  const std::int64_t both = slices + device::CeilDiv<std::int64_t>(shape.head_dim_v, 32);
  return {both + 2, both + 4};
}

// The first cut of a call.
core::Status CutByLoops(const core::Shape& shape, UnitPass pass, std::int64_t max_loop_rounds,
                        UnitChunks* chunks) {
  const LoopHalves halves = LoopHalvesOf(shape, pass);
  const std::int64_t max_halves = 2 * max_loop_rounds;
  chunks->keys = std::min(chunks->keys, max_halves / halves.per_key);
  if (halves.per_row == 0) return {};
  const std::int64_t max_queries = max_halves / halves.per_row / shape.group;
  if (max_queries == 0) {
    return core::Unsupported(
        core::Format("q.shape: %" PRId64
                     " query heads of a KV head are more than one dispatch of this adapter "
                     "bears (%" PRId64 ")",
                     shape.group, max_halves / halves.per_row));
  }
  chunks->queries = std::min(chunks->queries, max_queries);
  return {};
}

bool Halve(std::int64_t* count, std::int64_t least) {
  if (*count <= least) return false;
  *count = std::max(least, device::CeilDiv<std::int64_t>(*count, 2));
  return true;
}

}  // namespace

std::uint32_t ColumnsOf(std::int64_t num_groups) {
  return static_cast<std::uint32_t>(
      std::min(kMaxColumns, device::CeilDiv(num_groups, kColumnGroups)));
}

std::int64_t GroupWords(core::DType dtype) { return dtype == core::DType::kF32 ? 4 : 2; }

std::int64_t MaxLoopRounds(bool is_software) {
  constexpr std::int64_t kInSoftware = 32768;
  return is_software ? kInSoftware : std::numeric_limits<std::int32_t>::max();
}

core::Status ChooseUnitChunks(const core::ForwardProblem& problem, UnitPass pass,
                              const UnitLimits& limits, UnitChunks* chunks) {
  const core::Shape& shape = problem.shape;
  const auto max_words = static_cast<std::int64_t>(limits.max_binding_bytes / kWordBytes);
  // A whole tile of queries is kept together as long as keys can be divided instead.
  constexpr std::int64_t kFewQueries = 64, kFewKeys = 256;
  // Products above cannot overflow: lengths are below 2^31, and a first cut keeps them so.
  chunks->queries = std::clamp<std::int64_t>(shape.max_q_len, 1, max_words);
  chunks->keys = std::clamp<std::int64_t>(shape.max_kv_len, 1, max_words);
  HEED_RETURN_IF_ERROR(CutByLoops(shape, pass, limits.max_loop_rounds, chunks));
  chunks->has_partials = chunks->keys < shape.max_kv_len;
  while (LargestBinding(problem, pass, *chunks) > max_words) {
    if (Halve(&chunks->queries, kFewQueries)) continue;
    const bool is_cut =
        Halve(&chunks->keys, kFewKeys) || Halve(&chunks->queries, 1) || Halve(&chunks->keys, 1);
    if (!is_cut) {
      return core::Unsupported(
          core::Format("a query of %" PRId64 " heads needs a binding of %" PRId64
                       " bytes, more than the %" PRIu64 " that WebGPU devices have",
                       shape.group, LargestBinding(problem, pass, *chunks) * kWordBytes,
                       limits.max_binding_bytes));
    }
    chunks->has_partials = chunks->keys < shape.max_kv_len;
  }
  return {};
}

}  // namespace heed::webgpu
