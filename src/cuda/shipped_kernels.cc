#include "cuda/shipped_kernels.h"

#include <algorithm>
#include <utility>

#include "core/plan.h"
#include "core/registry.h"
#include "cuda/backend.h"
#include "cuda/backward.h"
#include "cuda/combine.h"
#include "cuda/forward.h"
#include "cuda/shipped_decode.h"
#include "cuda/shipped_label.h"

namespace heed::cuda {
namespace {

using core::BackwardProblem;
using core::DType;
using core::ForwardProblem;
using core::KernelRow;
using core::Op;

// What packs hold of every row, at the row's own head dim; other features and head dims compile on
// demand.
struct Bundle {
  std::string label;
  bool is_causal = false;
  FeatureSet features;
};

std::vector<Bundle> BundlesOf(std::span<const FeatureSet> feature_sets) {
  std::vector<Bundle> bundles = {{"full", false, {}}, {"causal", true, {}}};
  for (const FeatureSet& set : feature_sets) {
    bundles.push_back({set.label + ".full", false, set});
    // A window has a right end of its own.
    if (!set.window) bundles.push_back({set.label + ".causal", true, set});
  }
  return bundles;
}

bool HasKernels(const Bundle& bundle, Op op) {
  const FeatureSet& features = bundle.features;
  if (features.int8 || features.fp8 || features.int4) return false;
  return op == Op::kForward ? !features.deterministic && !features.d_bias : !features.split;
}

// Some rows have a kernel of its own for either.
constexpr double kSmallSoftcap = 30.0, kLargeSoftcap = 100.0;

void AddFeatures(const FeatureSet& features, DType dtype, ForwardProblem* problem) {
  core::ScoreRule& score = problem->score;
  if (features.window) score.window.left = score.window.right = 128;
  if (features.softcap) score.softcap = kSmallSoftcap;
  score.alibi_slopes.is_present = features.alibi;
  if (features.bias || features.d_bias) score.bias.dtype = dtype;
  if (features.bias_f32) score.bias.dtype = DType::kF32;
  // Compact rows, as most callers have them.
  score.bias.stride_elems = {0, 0, problem->shape.max_kv_len, 1};
  if (features.mask) score.mask.dtype = DType::kBool;
  score.mask.stride_elems = score.bias.stride_elems;
  score.sinks.is_present = features.sinks;
  if (features.dropout) score.dropout.drop_threshold = 6554;
  problem->cu_seqlens_q.is_present = problem->cu_seqlens_kv.is_present = features.packed;
  if (features.paged) {
    problem->cu_seqlens_kv.is_present = false;
    problem->seqused_kv.is_present = problem->block_table.is_present = true;
    problem->block_table.page_slots = 16;
    problem->block_table.num_pages = problem->block_table.max_pages = 32;
    for (core::RowsView* view : {&problem->k, &problem->v}) {
      view->batch_stride_elems = problem->block_table.page_slots * view->row_stride_elems;
    }
    problem->shape.total_kv_rows = 0;
  }
  if (features.split) problem->shape.max_kv_len = problem->shape.total_kv_rows = 16384;
  problem->exec.deterministic = features.deterministic;
}

constexpr std::int64_t kUsualRows = 512;

// A dense problem at the row's head dim that has few or many query tiles.
ForwardProblem ProblemFor(const KernelRow& row, const Bundle& bundle, std::int64_t num_heads,
                          std::int64_t num_rows = kUsualRows) {
  ForwardProblem problem;
  for (core::RowsView* view : {&problem.q, &problem.k, &problem.v, &problem.o}) {
    view->dtype = row.dtype;
    view->head_stride_elems = row.max_head_dim;
    view->row_stride_elems = num_heads * row.max_head_dim;
  }
  problem.exec.backend = HEED_BACKEND_CUDA;
  problem.shape = {.batch = 1,
                   .num_q_heads = num_heads,
                   .num_kv_heads = num_heads,
                   .max_q_len = num_rows,
                   .max_kv_len = num_rows,
                   .total_q_rows = num_rows,
                   .total_kv_rows = num_rows,
                   .head_dim = row.max_head_dim,
                   .head_dim_v = row.max_head_dim};
  problem.score.window.right = bundle.is_causal ? 0 : device::kUnlimited;
  AddFeatures(bundle.features, row.dtype, &problem);
  return problem;
}

BackwardProblem BackwardProblemFor(const KernelRow& row, const Bundle& bundle,
                                   std::int64_t num_heads) {
  BackwardProblem problem;
  problem.forward = ProblemFor(row, bundle, num_heads);
  problem.d_o = problem.forward.o;
  problem.dq = problem.forward.q;
  problem.dk = problem.forward.k;
  problem.dv = problem.forward.v;
  if (bundle.features.d_bias) problem.d_bias.dtype = row.dtype;
  return problem;
}

struct CallSize {
  std::int64_t num_heads;
  std::int64_t num_rows;
};
// Few and many tiles, and long sequences.
constexpr CallSize kCallSizes[] = {{8, kUsualRows}, {4096, kUsualRows}, {8, 8 * kUsualRows}};

// Whether the planner would choose the row for this kind of problem on this architecture.
bool IsChosen(const KernelRow& row, const Bundle& bundle, const core::DeviceFacts& facts) {
  if (!HasKernels(bundle, row.op)) return false;
  for (const auto& [num_heads, num_rows] : kCallSizes) {
    core::Plan plan;
    const bool is_usual = num_heads == kCallSizes[0].num_heads && num_rows == kUsualRows;
    if (bundle.features.split && !is_usual) continue;
    const core::Status planned =
        row.op == Op::kForward
            ? core::PlanForward(ProblemFor(row, bundle, num_heads, num_rows), facts, &plan, nullptr)
            : core::PlanBackward(BackwardProblemFor(row, bundle, num_heads), facts, &plan, nullptr);
    if (planned.ok() && plan.row == &row) return true;
  }
  return false;
}

std::size_t SharedBytesOf(const KernelRow& row) {
  return row.op == Op::kForward ? ForwardSharedBytesOf(row, row.max_head_dim, row.max_head_dim)
                                : BackwardSharedBytesOf(row, row.max_head_dim, row.max_head_dim);
}

void AddRow(const KernelRow& row, const Bundle& bundle, std::vector<KernelSource>* kernels) {
  const std::string label = std::string(row.id) + "." + bundle.label;
  if (row.op == Op::kForward) {
    ForwardProblem problem = ProblemFor(row, bundle, 1);
    const int num_splits = bundle.features.split ? 2 : 1;
    const KernelKey key = ForwardKeyOf(row, problem, num_splits);
    kernels->push_back(Labelled(key, label, SharedBytesOf(row)));
    if (!bundle.features.softcap) return;
    problem.score.softcap = kLargeSoftcap;
    const KernelKey large = ForwardKeyOf(row, problem, num_splits);
    if (large.traits.variant != key.traits.variant) {
      kernels->push_back(Labelled(large, label + ".large-cap", SharedBytesOf(row)));
    }
    return;
  }
  const KernelKey key = BackwardKeyOf(row, BackwardProblemFor(row, bundle, 1));
  kernels->push_back(Labelled(key, label, SharedBytesOf(row)));
  if (bundle.is_causal) return;  // the kernels around it are those of the full one
  kernels->push_back(Labelled(BackwardRowsKeyOf(key, KernelEntry::kBackwardPre), label + ".pre"));
  kernels->push_back(Labelled(BackwardRowsKeyOf(key, KernelEntry::kBackwardPost), label + ".post"));
}

KernelKey ConvertLseKeyOf(int direction) {
  KernelKey key;
  key.entry = KernelEntry::kConvertLse;
  key.traits.variant = direction;
  return key;
}

void AddHelpers(std::vector<KernelSource>* kernels) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    const std::string label = std::string("cuda.combine.") + DTypeName(dtype);
    kernels->push_back(Labelled(CombineKeyOf(dtype, false), label));
    kernels->push_back(Labelled(CombineKeyOf(dtype, true), label + ".packed"));
  }
  for (const int direction : {0, 1}) {  // to and from a caller's fp16 lse
    kernels->push_back(Labelled(ConvertLseKeyOf(direction),
                                direction == 0 ? "cuda.lse.to_f16" : "cuda.lse.from_f16"));
  }
  KernelKey key;
  key.entry = KernelEntry::kDropoutMask;
  kernels->push_back(Labelled(key, "cuda.dropout_mask"));
}

void AddForwardCall(const ForwardProblem& call, const core::Plan& plan, const std::string& suffix,
                    std::vector<KernelSource>* kernels) {
  const KernelKey key = ForwardKeyOf(*plan.row, call, plan.num_splits);
  AddUnlessThere(Labelled(key, plan.row->id + suffix), kernels);
  if (plan.num_splits > 1) {
    AddUnlessThere(
        Labelled(CombineKeyOf(call.o.dtype, key.traits.varlen != 0), "cuda.combine" + suffix),
        kernels);
  }
}

// Gradients of the types, strides and head dims of what they are gradients of.
BackwardProblem GradientsOf(const ForwardProblem& call) {
  BackwardProblem problem;
  problem.forward = call;
  problem.d_o = call.o;
  problem.dq = call.q;
  problem.dk = call.k;
  problem.dv = call.v;
  return problem;
}

}  // namespace

core::Status KernelsOfCall(CompileTarget target, const ForwardProblem& call, Pass last_pass,
                           const std::string& suffix, std::vector<KernelSource>* kernels) {
  core::DeviceFacts facts = FactsOf(target);
  ForwardProblem problem = call;
  problem.exec.backend = HEED_BACKEND_CUDA;
  problem.exec.device = {HEED_DEVICE_CUDA, 0};
  for (const int num_multiprocessors : kSizesOfGpus) {
    facts.cuda.num_multiprocessors = num_multiprocessors;
    core::Plan plan;
    HEED_RETURN_IF_ERROR(core::PlanForward(problem, facts, &plan, nullptr));
    AddForwardCall(problem, plan, suffix, kernels);
    if (last_pass == Pass::kForward) continue;
    const BackwardProblem gradients = GradientsOf(problem);
    HEED_RETURN_IF_ERROR(core::PlanBackward(gradients, facts, &plan, nullptr));
    const KernelKey key = BackwardKeyOf(*plan.row, gradients);
    const std::string label = plan.row->id + suffix;
    AddUnlessThere(Labelled(key, label), kernels);
    for (const auto& [entry, name] : {std::pair{KernelEntry::kBackwardPre, ".pre"},
                                      std::pair{KernelEntry::kBackwardPost, ".post"}}) {
      AddUnlessThere(Labelled(BackwardRowsKeyOf(key, entry), label + name), kernels);
    }
  }
  for (const int direction : {0, 1}) {  // to and from a caller's fp16 lse
    if (problem.lse.dtype == DType::kF16) {
      AddUnlessThere(Labelled(ConvertLseKeyOf(direction),
                              (direction == 0 ? "cuda.lse.to_f16" : "cuda.lse.from_f16") + suffix),
                     kernels);
    }
  }
  return {};
}

std::vector<KernelSource> ShippedKernels(CompileTarget target,
                                         std::span<const FeatureSet> feature_sets) {
  constexpr int kOldestArch = 75;
  if (10 * target.major + target.minor < kOldestArch) return {};
  const core::DeviceFacts facts = FactsOf(target);
  std::vector<KernelSource> kernels;
  for (const KernelRow& row : core::KernelRows()) {
    const bool has_tiles = row.op == Op::kForward || row.op == Op::kBackward;
    if (row.backend != core::Backend::kCuda || !has_tiles) continue;
    for (const Bundle& bundle : BundlesOf(feature_sets)) {
      if (IsChosen(row, bundle, facts)) AddRow(row, bundle, &kernels);
    }
  }
  AddDecodeKernels(facts, feature_sets, &kernels);
  AddHelpers(&kernels);
  return kernels;
}

}  // namespace heed::cuda
