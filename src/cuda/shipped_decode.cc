#include "cuda/shipped_decode.h"

#include <string>

#include "core/plan_decode.h"
#include "core/session_config.h"
#include "cuda/decode.h"
#include "cuda/decode_clusters.h"
#include "cuda/kernels/decode/shape.h"
#include "cuda/shipped_label.h"

namespace heed::cuda {
namespace {

using core::DecodeProblem;
using core::DType;

// Sizes that divide calls among rows: a sequence alone with few and many heads and batches of 24,
// 32 and 512 tasks, which clusters share, then groups that fit 16 rows, and a chunk of a prompt.
struct CallSize {
  std::int64_t batch, num_kv_heads, group, new_tokens;
};
constexpr CallSize kCallSizes[] = {{1, 2, 4, 1},  {1, 32, 1, 1},  {3, 8, 4, 1},  {16, 2, 4, 1},
                                   {64, 8, 4, 1}, {64, 8, 16, 1}, {64, 8, 4, 64}};
struct HeadDims {
  std::int64_t keys, values;
};
// The last ones are latent vectors: values are columns of the keys. Kernels of 256 spill registers
// and are compiled where they are called.
constexpr HeadDims kHeadDims[] = {{64, 64}, {128, 128}, {576, 512}};
constexpr std::int64_t kCapacityTokens = 4096;

bool IsQuantised(const FeatureSet& set) { return set.int8 || set.fp8 || set.int4; }

// Windows and sinks are no traits of decode kernels.
bool HasDecodeKernels(const FeatureSet& set) {
  if (set.bias || set.bias_f32 || set.mask || set.dropout || set.packed || set.split ||
      set.deterministic || set.d_bias) {
    return false;
  }
  return set.softcap || set.alibi || set.paged || IsQuantised(set);
}

heed_kv_format_t FormatOf(const FeatureSet& set) {
  if (set.int8) return HEED_KV_INT8;
  if (set.fp8) return HEED_KV_FP8_E4M3;
  return set.int4 ? HEED_KV_INT4 : HEED_KV_PLAIN;
}

core::RowsView RowsOf(DType dtype, std::int64_t num_heads, std::int64_t head_dim) {
  core::RowsView view;
  view.dtype = dtype;
  view.head_stride_elems = head_dim;
  view.row_stride_elems = num_heads * head_dim;
  view.batch_stride_elems = kCapacityTokens * view.row_stride_elems;
  return view;
}

core::KvCacheView CacheOf(const FeatureSet& set, DType dtype, std::int64_t num_heads,
                          std::int64_t head_dim) {
  core::KvCacheView view;
  view.format = FormatOf(set);
  view.rows = RowsOf(IsQuantised(set) ? DType::kU8 : dtype, num_heads, head_dim);
  view.head_dim = head_dim;
  view.payload_elems = set.int4 ? head_dim / 2 : head_dim;
  if (IsQuantised(set)) {
    view.num_groups = core::NumSessionScales(view.format, head_dim);
    view.scales = RowsOf(DType::kF32, num_heads, view.num_groups);
  }
  return view;
}

DecodeProblem ProblemFor(const FeatureSet& set, DType dtype, const HeadDims& dims,
                         const CallSize& size) {
  DecodeProblem problem;
  core::ForwardProblem& attention = problem.attention;
  attention.exec.backend = HEED_BACKEND_CUDA;
  attention.exec.device = {HEED_DEVICE_CUDA, 0};
  const std::int64_t num_q_heads = size.num_kv_heads * size.group;
  attention.shape = {.batch = size.batch,
                     .num_q_heads = num_q_heads,
                     .num_kv_heads = size.num_kv_heads,
                     .group = size.group,
                     .max_q_len = size.new_tokens,
                     .max_kv_len = kCapacityTokens,
                     .total_q_rows = size.batch * size.new_tokens,
                     .head_dim = dims.keys,
                     .head_dim_v = dims.values};
  attention.q = RowsOf(dtype, num_q_heads, dims.keys);
  attention.o = RowsOf(dtype, num_q_heads, dims.values);
  attention.score.softcap = set.softcap ? 30.0 : 0.0;
  attention.score.alibi_slopes.is_present = set.alibi;
  attention.block_table.is_present = set.paged;
  problem.k = problem.v = CacheOf(set, dtype, size.num_kv_heads, dims.keys);
  problem.v.head_dim = dims.values;
  problem.capacity_rows = kCapacityTokens;
  problem.num_cache_rows = size.batch;
  return problem;
}

// What tells two kernels of one row and feature set apart.
std::string VariantName(const KernelKey& key) {
  const DecodeVariant variant = DecodeDecodeVariant(key.traits.variant);
  if (key.entry == KernelEntry::kDecodeCluster) {
    constexpr const char* kNames[] = {".singles", "", ".quads", ".octets"};
    return std::string(kNames[variant.cluster_log2]) + (variant.ctas_per_sm > 1 ? ".two" : "") +
           (variant.appends ? ".append" : "");
  }
  if (variant.heads_log2 > 0) return ".heads";
  return key.traits.tile_q == kDecodeColumns ? ".columns" : "";
}

void AddQuantizeKernel(const DecodeProblem& problem, DType source_dtype, const std::string& label,
                       std::vector<KernelSource>* kernels) {
  AddUnlessThere(Labelled(QuantizeKvKeyOf(source_dtype, problem.k.format),
                          std::string("cuda.quantize_kv.") + core::DTypeName(source_dtype) + label),
                 kernels);
}

core::Status AddCall(const DecodeProblem& problem, const core::DeviceFacts& facts,
                     const std::string& label, std::vector<KernelSource>* kernels) {
  core::Plan plan;
  HEED_RETURN_IF_ERROR(core::PlanDecode(problem, facts, &plan, nullptr));
  const auto add = [&](const KernelKey& key) {
    AddUnlessThere(
        Labelled(key, plan.row->id + VariantName(key) + label, DecodeSharedBytesOfKey(key)),
        kernels);
  };
  const KernelKey key = DecodeKeyOf(*plan.row, problem);
  add(key);
  if (key.entry == KernelEntry::kDecodeCluster) add(AppendingKeyOf(key));
  AddUnlessThere(
      Labelled(DecodeAppendKeyOf(problem), std::string("cuda.decode_append.") +
                                               core::DTypeName(problem.attention.dtype()) + label),
      kernels);
  return {};
}

void AddFeatureSet(const FeatureSet& set, const core::DeviceFacts& facts, const std::string& label,
                   std::vector<KernelSource>* kernels) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const HeadDims& dims : kHeadDims) {
      for (const CallSize& size : kCallSizes) {
        // What no row takes has no kernels.
        (void)AddCall(ProblemFor(set, dtype, dims, size), facts, label, kernels);
      }
    }
  }
}

}  // namespace

void AddDecodeKernels(const core::DeviceFacts& facts, std::span<const FeatureSet> feature_sets,
                      std::vector<KernelSource>* kernels) {
  AddFeatureSet({}, facts, ".plain", kernels);
  for (const FeatureSet& set : feature_sets) {
    if (!HasDecodeKernels(set)) continue;
    AddFeatureSet(set, facts, "." + set.label, kernels);
    if (!IsQuantised(set)) continue;
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
      AddQuantizeKernel(ProblemFor(set, dtype, kHeadDims[0], kCallSizes[0]), dtype, "." + set.label,
                        kernels);
    }
  }
}

core::Status KernelsOfDecodeCall(const core::DeviceFacts& facts, const DecodeProblem& call,
                                 const std::string& suffix, std::vector<KernelSource>* kernels) {
  DecodeProblem problem = call;
  problem.attention.exec.backend = HEED_BACKEND_CUDA;
  problem.attention.exec.device = {HEED_DEVICE_CUDA, 0};
  core::DeviceFacts sized = facts;
  for (const int num_multiprocessors : kSizesOfGpus) {
    sized.cuda.num_multiprocessors = num_multiprocessors;
    HEED_RETURN_IF_ERROR(AddCall(problem, sized, suffix, kernels));
  }
  return {};
}

}  // namespace heed::cuda
