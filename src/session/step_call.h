// Where a session keeps its tensors, and the decode call over them.
#ifndef HEED_SESSION_STEP_CALL_H_
#define HEED_SESSION_STEP_CALL_H_

#include <array>
#include <cstddef>
#include <vector>

#include "core/session_config.h"

namespace heed::session {

// Byte offsets of a tensor's parts; every part starts at a multiple of kPartAlignmentBytes.
inline constexpr std::size_t kPartAlignmentBytes = 256;

// Keys, values and their scales: [B, capacity, Hkv, bytes] with the tokens of a head in a row.
struct CacheLayout {
  std::int64_t k_row_elems = 0, v_row_elems = 0;  // of a payload row
  std::int64_t k_groups = 0, v_groups = 0;        // scales of a row; 0 = none apart
  std::size_t k_at = 0, v_at = 0, k_scales_at = 0, v_scales_at = 0;
  std::size_t size_bytes = 0;
};
// HEED_INVALID_ARGUMENT when the bytes overflow.
core::Status LayOutCache(const core::SessionConfig& config, CacheLayout* layout);

// A step of up to `max_tokens` tokens: two arrays of cache lengths, q, k, v, and the output.
struct StepLayout {
  std::int64_t max_tokens = 0;
  std::size_t lengths_before_at = 0, lengths_after_at = 0;
  std::size_t q_at = 0, k_at = 0, v_at = 0;
  std::size_t upload_bytes = 0;  // all of the above
  std::size_t o_at = 0;
  std::size_t size_bytes = 0;
};
core::Status LayOutStep(const core::SessionConfig& config, std::int64_t max_tokens,
                        StepLayout* layout);

enum class Append { kNo, kYes };

// Addresses and sizes of one decode call. Null blocks: for planning only.
struct StepBlocks {
  CacheLayout cache;
  StepLayout step;
  std::byte* cache_block = nullptr;
  std::byte* step_block = nullptr;  // of the output
  std::byte* inputs = nullptr;      // likewise laid out, for everything else
  std::int64_t num_tokens = 1;
  Append append = Append::kYes;
  const std::int32_t* lengths = nullptr;  // instead of the step's own, for planning
};

// heed_decode's arguments over session memory, with everything they point at.
class StepCall {
 public:
  StepCall(const core::SessionConfig& config, const StepBlocks& blocks,
           const heed_score_args_t& score, const heed_exec_args_t& exec);
  StepCall(const StepCall&) = delete;
  StepCall& operator=(const StepCall&) = delete;

  const heed_decode_args_t& args() const { return args_; }

 private:
  struct Tensor {
    heed_tensor_t tensor;
    std::array<std::int64_t, 4> shape, strides;
  };

  // A cache part [B, capacity, Hkv, row_elems], head by head.
  const heed_tensor_t* SetCache(Tensor* target, std::byte* data, core::DType dtype,
                                std::int64_t row_elems);
  // A compact part of the step [B, tokens, heads, head_dim].
  const heed_tensor_t* SetRows(Tensor* target, std::byte* data, std::int64_t num_heads,
                               std::int64_t head_dim);
  void SetLengths(const StepBlocks& blocks);

  const core::SessionConfig& config_;
  std::int64_t num_tokens_;
  Tensor q_, k_cache_, v_cache_, k_scales_, v_scales_, k_new_, v_new_, o_, lengths_;
  heed_kv_quant_args_t quant_ = HEED_KV_QUANT_ARGS_INIT;
  heed_decode_args_t args_ = HEED_DECODE_ARGS_INIT;
};

}  // namespace heed::session

#endif  // HEED_SESSION_STEP_CALL_H_
