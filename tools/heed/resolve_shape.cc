#include <cstdint>
#include <string>
#include <utility>

#include "errors.h"
#include "options.h"

namespace heed::tools {

ResolvedShape Resolve(const ShapeOptions& shape) {
  const ResolvedShape resolved = {shape.batch,
                                  shape.num_q_heads,
                                  shape.num_kv_heads == 0 ? shape.num_q_heads : shape.num_kv_heads,
                                  shape.q_len,
                                  shape.kv_len == -1 ? shape.q_len : shape.kv_len,
                                  shape.head_dim,
                                  shape.head_dim_v == 0 ? shape.head_dim : shape.head_dim_v};
  for (const auto& [flag, value] : {std::pair{"--batch", resolved.batch},
                                    {"--heads", resolved.num_q_heads},
                                    {"--kv-heads", resolved.num_kv_heads},
                                    {"--sq", resolved.q_len},
                                    {"--skv", resolved.kv_len},
                                    {"--d", resolved.head_dim},
                                    {"--dv", resolved.head_dim_v}}) {
    // Products of two extents, and the int32 offsets of random packings, stay in range.
    if (value < 0 || value > INT32_MAX) {
      throw InputError(std::string(flag) + " = " + std::to_string(value) +
                       ": must be in [0, 2147483647]");
    }
  }
  return resolved;
}

}  // namespace heed::tools
