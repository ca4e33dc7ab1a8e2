// How a call is divided so that every dispatch stays within what its device bears.
#ifndef HEED_WEBGPU_UNIT_CHUNKS_H_
#define HEED_WEBGPU_UNIT_CHUNKS_H_

#include <cstdint>

#include "core/problem.h"

namespace heed::webgpu {

// What a call computes, which decides how much its units write.
enum class UnitPass : std::uint8_t { kForward, kBackward, kBackwardWithBias };

// Largest part of one KV head of a sequence that is dispatched at a time.
struct UnitChunks {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  // Some sequence has more keys than that: its results are merged or added up on the host.
  bool has_partials = false;
};

// What a dispatch may need.
struct UnitLimits {
  std::uint64_t max_binding_bytes = 0;
  // Rounds of the innermost loops of an invocation, all together.
  std::int64_t max_loop_rounds = 0;
};

// Of an adapter. Mesa's llvmpipe leaves a loop, and reports nothing, after 65535 rounds of it and
// of those inside it: adapters in software get half of that.
std::int64_t MaxLoopRounds(bool is_software);

// Errors: HEED_UNSUPPORTED when a single row is beyond a limit.
core::Status ChooseUnitChunks(const core::ForwardProblem& problem, UnitPass pass,
                              const UnitLimits& limits, UnitChunks* chunks);

// Column steps of a workgroup for rows of that many groups of 4 elements.
std::uint32_t ColumnsOf(std::int64_t num_groups);

// Words of 32 bits of four elements of q's type: 4 or 2.
std::int64_t GroupWords(core::DType dtype);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_UNIT_CHUNKS_H_
