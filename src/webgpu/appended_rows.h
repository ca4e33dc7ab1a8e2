// Tokens that a decode call appends to plain caches in a caller's buffers.
#ifndef HEED_WEBGPU_APPENDED_ROWS_H_
#define HEED_WEBGPU_APPENDED_ROWS_H_

#include <vector>

#include "core/decode_problem.h"
#include "webgpu/device.h"

namespace heed::webgpu {

// Rows of k_new, rotated, and of v_new, and the slots that they go to. No words are more than a
// binding holds.
std::vector<PackedRows> AppendedRows(const core::DecodeProblem& decode,
                                     std::uint64_t max_binding_bytes);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_APPENDED_ROWS_H_
