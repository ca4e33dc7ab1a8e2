#include "session/step_call.h"

#include <cinttypes>
#include <initializer_list>

#include "core/build/kv_format.h"

namespace heed::session {
namespace {

using core::DType;
using core::Status;

// Adds the bytes of a part, whose extents are positive, behind *end; false when they overflow.
bool AddPart(std::initializer_list<std::int64_t> extents, std::size_t elem_bytes, std::size_t* at,
             std::size_t* end) {
  std::int64_t bytes = static_cast<std::int64_t>(elem_bytes);
  for (const std::int64_t extent : extents) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return false;
  }
  constexpr auto kAlignment = static_cast<std::int64_t>(kPartAlignmentBytes);
  std::int64_t past = 0;
  if (__builtin_add_overflow(bytes, kAlignment - 1, &bytes)) return false;
  bytes = bytes / kAlignment * kAlignment;
  if (__builtin_add_overflow(static_cast<std::int64_t>(*end), bytes, &past)) return false;
  *at = *end;
  *end = static_cast<std::size_t>(past);
  return true;
}

DType CacheDType(const core::SessionConfig& config) {
  return config.kv_format == HEED_KV_PLAIN ? config.dtype : DType::kU8;
}

}  // namespace

Status LayOutCache(const core::SessionConfig& config, CacheLayout* layout) {
  *layout = CacheLayout{};
  layout->k_row_elems = core::KvPayloadElems(config.kv_format, config.head_dim);
  layout->v_row_elems = core::KvPayloadElems(config.kv_format, config.head_dim_v);
  layout->k_groups = core::NumSessionScales(config.kv_format, config.head_dim);
  layout->v_groups = core::NumSessionScales(config.kv_format, config.head_dim_v);
  const std::size_t elem_bytes = core::DTypeBytes(CacheDType(config));
  const auto add = [&](std::int64_t row_elems, std::size_t bytes, std::size_t* at) {
    return AddPart({config.num_sequences, config.num_kv_heads, config.capacity_tokens, row_elems},
                   bytes, at, &layout->size_bytes);
  };
  if (add(layout->k_row_elems, elem_bytes, &layout->k_at) &&
      add(layout->v_row_elems, elem_bytes, &layout->v_at) &&
      add(layout->k_groups, sizeof(float), &layout->k_scales_at) &&
      add(layout->v_groups, sizeof(float), &layout->v_scales_at)) {
    return {};
  }
  return core::InvalidArgument(core::Format("config.capacity_tokens = %" PRId64
                                            ": the cache's bytes overflow 64 bits",
                                            config.capacity_tokens));
}

Status LayOutStep(const core::SessionConfig& config, std::int64_t max_tokens, StepLayout* layout) {
  *layout = StepLayout{};
  layout->max_tokens = max_tokens;
  const std::size_t elem_bytes = core::DTypeBytes(config.dtype);
  const auto add_rows = [&](std::int64_t num_heads, std::int64_t head_dim, std::size_t* at) {
    return AddPart({config.num_sequences, max_tokens, num_heads, head_dim}, elem_bytes, at,
                   &layout->size_bytes);
  };
  bool fits = true;
  for (std::size_t* at : {&layout->lengths_before_at, &layout->lengths_after_at}) {
    fits = fits && AddPart({config.num_sequences}, sizeof(std::int32_t), at, &layout->size_bytes);
  }
  fits = fits && add_rows(config.num_q_heads, config.head_dim, &layout->q_at) &&
         add_rows(config.num_kv_heads, config.head_dim, &layout->k_at) &&
         add_rows(config.num_kv_heads, config.head_dim_v, &layout->v_at);
  layout->upload_bytes = layout->size_bytes;
  fits = fits && add_rows(config.num_q_heads, config.head_dim_v, &layout->o_at);
  if (fits) return {};
  return core::InvalidArgument(
      core::Format("a step of %" PRId64 " tokens: its bytes overflow 64 bits", max_tokens));
}

StepCall::StepCall(const core::SessionConfig& config, const StepBlocks& blocks,
                   const heed_score_args_t& score, const heed_exec_args_t& exec)
    : config_(config), num_tokens_(blocks.num_tokens) {
  const auto at = [](std::byte* block, std::size_t offset_bytes) {
    return block == nullptr ? nullptr : block + offset_bytes;
  };
  const CacheLayout& cache = blocks.cache;
  const StepLayout& step = blocks.step;
  const DType dtype = CacheDType(config);
  std::byte* const rows = blocks.inputs;
  args_.q = SetRows(&q_, at(rows, step.q_at), config.num_q_heads, config.head_dim);
  args_.o = SetRows(&o_, at(blocks.step_block, step.o_at), config.num_q_heads, config.head_dim_v);
  if (blocks.append == Append::kYes) {
    args_.k_new = SetRows(&k_new_, at(rows, step.k_at), config.num_kv_heads, config.head_dim);
    args_.v_new = SetRows(&v_new_, at(rows, step.v_at), config.num_kv_heads, config.head_dim_v);
  }
  std::byte* const slots = blocks.cache_block;
  args_.k_cache = SetCache(&k_cache_, at(slots, cache.k_at), dtype, cache.k_row_elems);
  args_.v_cache = SetCache(&v_cache_, at(slots, cache.v_at), dtype, cache.v_row_elems);
  if (config.kv_format != HEED_KV_PLAIN) {
    quant_.format = config.kv_format;
    args_.quant = &quant_;
  }
  if (cache.k_groups > 0) {
    quant_.k_scales =
        SetCache(&k_scales_, at(slots, cache.k_scales_at), DType::kF32, cache.k_groups);
    quant_.v_scales =
        SetCache(&v_scales_, at(slots, cache.v_scales_at), DType::kF32, cache.v_groups);
  }
  SetLengths(blocks);
  args_.score = &score;
  args_.exec = &exec;
}

const heed_tensor_t* StepCall::SetCache(Tensor* target, std::byte* data, DType dtype,
                                        std::int64_t row_elems) {
  const std::int64_t head_elems = config_.capacity_tokens * row_elems;
  target->shape = {config_.num_sequences, config_.capacity_tokens, config_.num_kv_heads, row_elems};
  target->strides = {config_.num_kv_heads * head_elems, row_elems, head_elems, 1};
  target->tensor = {data,
                    config_.device,
                    4,
                    core::DTypeToAbi(dtype),
                    target->shape.data(),
                    target->strides.data(),
                    0};
  return &target->tensor;
}

const heed_tensor_t* StepCall::SetRows(Tensor* target, std::byte* data, std::int64_t num_heads,
                                       std::int64_t head_dim) {
  target->shape = {config_.num_sequences, num_tokens_, num_heads, head_dim};
  target->tensor = {
      data, config_.device, 4, core::DTypeToAbi(config_.dtype), target->shape.data(), nullptr, 0};
  return &target->tensor;
}

void StepCall::SetLengths(const StepBlocks& blocks) {
  const std::size_t at_bytes =
      blocks.append == Append::kYes ? blocks.step.lengths_before_at : blocks.step.lengths_after_at;
  void* data = blocks.inputs == nullptr ? nullptr : blocks.inputs + at_bytes;
  // heed only reads lengths.
  if (blocks.lengths != nullptr) data = const_cast<std::int32_t*>(blocks.lengths);
  lengths_.shape = {config_.num_sequences};
  lengths_.tensor = {
      data, config_.device, 1, core::DTypeToAbi(DType::kI32), lengths_.shape.data(), nullptr, 0};
  args_.cache_lengths = &lengths_.tensor;
}

}  // namespace heed::session
