// What one dispatch computes is made of these.
#ifndef HEED_WEBGPU_UNIT_H_
#define HEED_WEBGPU_UNIT_H_

#include <cstdint>

#include "core/problem.h"

namespace heed::webgpu {

// Some queries of one KV head of a sequence against some of its keys.
struct Unit {
  std::int64_t batch = 0;
  core::Sequence sequence;
  std::int64_t kv_head = 0;
  std::int64_t first_query = 0, num_queries = 0;
  std::int64_t first_key = 0, num_keys = 0;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_UNIT_H_
