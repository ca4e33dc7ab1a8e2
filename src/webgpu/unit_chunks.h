// How a call is divided so that every binding of a dispatch stays within a number of bytes.
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

// Errors: HEED_UNSUPPORTED when a single row is larger than max_binding_bytes.
core::Status ChooseUnitChunks(const core::ForwardProblem& problem, UnitPass pass,
                              std::uint64_t max_binding_bytes, UnitChunks* chunks);

// Column steps of a workgroup for rows of that many groups of 4 elements.
std::uint32_t ColumnsOf(std::int64_t num_groups);

// Words of 32 bits of four elements of q's type: 4 or 2.
std::int64_t GroupWords(core::DType dtype);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_UNIT_CHUNKS_H_
