// A validated session: what the decode calls that it makes have in common.
#ifndef HEED_CORE_SESSION_CONFIG_H_
#define HEED_CORE_SESSION_CONFIG_H_

#include "core/problem.h"

namespace heed::core {

struct SessionConfig {
  heed_device_t device = {HEED_DEVICE_CPU, 0};
  std::int64_t num_sequences = 0;
  std::int64_t num_q_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t head_dim_v = 0;
  std::int64_t capacity_tokens = 0;  // at most what a cache length holds
  DType dtype = DType::kInvalid;
  heed_kv_format_t kv_format = HEED_KV_PLAIN;
  bool use_graph = false;
  ExecOptions exec;
};

// Checks every rule but those that depend on the tokens of a step; score and exec stay with the
// caller's struct.
Status ReadSessionConfig(const heed_session_config_t* source, SessionConfig* config);

// Scales of a row in a session's cache, each of one group of elements; 0 = none apart. Rows as a
// whole, but 64 elements for int4, whose 16 levels are few.
std::int64_t NumSessionScales(heed_kv_format_t format, std::int64_t head_dim);

}  // namespace heed::core

#endif  // HEED_CORE_SESSION_CONFIG_H_
