// Rows of a caller's host tensor <-> compact rows of a session, with conversion.
#ifndef HEED_CORE_SESSION_ROWS_H_
#define HEED_CORE_SESSION_ROWS_H_

#include "core/session_device.h"

namespace heed::core {

// source: [B,S,H,D], any strides with a contiguous last axis, fp32 or `dtype`, which is fp32, fp16
// or bf16. compact: B * S * H * D elements of `dtype`.
void PackRows(const TensorInfo& source, DType dtype, void* compact);
void UnpackRows(const void* compact, DType dtype, const TensorInfo& target);

// Writes a step into a host block: step.block itself, or what is copied there. Leaves out rows that
// are not in host memory.
void PackStep(const SessionStep& step, void* block);

}  // namespace heed::core

#endif  // HEED_CORE_SESSION_ROWS_H_
