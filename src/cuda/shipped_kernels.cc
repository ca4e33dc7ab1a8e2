#include "cuda/shipped_kernels.h"

#include "core/registry.h"
#include "cuda/arch_limits.h"
#include "cuda/backend.h"
#include "cuda/backward.h"
#include "cuda/combine.h"
#include "cuda/forward.h"

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
  const char* label;
  bool is_causal;
};
constexpr Bundle kBundles[] = {{"full", false}, {"causal", true}};

core::DeviceFacts FactsOf(int arch) {
  core::DeviceFacts facts;
  facts.cuda.why_unavailable.clear();
  facts.cuda.compute_capability = arch;
  facts.cuda.num_multiprocessors = 100;  // only divides small problems from large ones
  facts.cuda.max_shared_bytes = static_cast<std::size_t>(MaxSharedBytes(arch));
  facts.cuda.planner = Planner();
  return facts;
}

// A dense problem at the row's head dim that has few or many query tiles.
ForwardProblem ProblemFor(const KernelRow& row, const Bundle& bundle, std::int64_t num_heads) {
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
                   .max_q_len = 512,
                   .max_kv_len = 512,
                   .total_q_rows = 512,
                   .total_kv_rows = 512,
                   .head_dim = row.max_head_dim,
                   .head_dim_v = row.max_head_dim};
  problem.score.window.right = bundle.is_causal ? 0 : device::kUnlimited;
  return problem;
}

BackwardProblem BackwardProblemFor(const KernelRow& row, const Bundle& bundle,
                                   std::int64_t num_heads) {
  BackwardProblem problem;
  problem.forward = ProblemFor(row, bundle, num_heads);
  for (core::RowsView* view : {&problem.d_o, &problem.dq, &problem.dk, &problem.dv}) {
    view->dtype = row.dtype;
  }
  return problem;
}

constexpr std::int64_t kHeadCounts[] = {8, 4096};

// Whether the planner would choose the row for this kind of problem on this architecture.
bool IsChosen(const KernelRow& row, const Bundle& bundle, const core::DeviceFacts& facts) {
  for (const std::int64_t num_heads : kHeadCounts) {
    core::Plan plan;
    const core::Status planned =
        row.op == Op::kForward
            ? core::PlanForward(ProblemFor(row, bundle, num_heads), facts, &plan, nullptr)
            : core::PlanBackward(BackwardProblemFor(row, bundle, num_heads), facts, &plan, nullptr);
    if (planned.ok() && plan.row == &row) return true;
  }
  return false;
}

std::size_t SharedBytesOf(const KernelRow& row) {
  return row.op == Op::kForward ? ForwardSharedBytesOf(row, row.max_head_dim, row.max_head_dim)
                                : BackwardSharedBytesOf(row, row.max_head_dim, row.max_head_dim);
}

KernelSource Labelled(const KernelKey& key, const std::string& label,
                      std::size_t dynamic_shared_bytes = 0) {
  KernelSource source = SourceOf(key);
  source.label = label;
  source.dynamic_shared_bytes = static_cast<int>(dynamic_shared_bytes);
  return source;
}

void AddRow(const KernelRow& row, const Bundle& bundle, std::vector<KernelSource>* kernels) {
  const std::string label = std::string(row.id) + "." + bundle.label;
  if (row.op == Op::kForward) {
    const KernelKey key = ForwardKeyOf(row, ProblemFor(row, bundle, 1), 1);
    return kernels->push_back(Labelled(key, label, SharedBytesOf(row)));
  }
  const KernelKey key = BackwardKeyOf(row, BackwardProblemFor(row, bundle, 1));
  kernels->push_back(Labelled(key, label, SharedBytesOf(row)));
  if (bundle.is_causal) return;  // the kernels around it are those of the full one
  kernels->push_back(Labelled(BackwardRowsKeyOf(key, KernelEntry::kBackwardPre), label + ".pre"));
  kernels->push_back(Labelled(BackwardRowsKeyOf(key, KernelEntry::kBackwardPost), label + ".post"));
}

void AddHelpers(std::vector<KernelSource>* kernels) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    kernels->push_back(
        Labelled(CombineKeyOf(dtype, false), std::string("cuda.combine.") + DTypeName(dtype)));
  }
  KernelKey key;
  key.entry = KernelEntry::kConvertLse;
  for (const int direction : {0, 1}) {  // to and from a caller's fp16 lse
    key.traits.variant = direction;
    kernels->push_back(Labelled(key, direction == 0 ? "cuda.lse.to_f16" : "cuda.lse.from_f16"));
  }
  key = {};
  key.entry = KernelEntry::kDropoutMask;
  kernels->push_back(Labelled(key, "cuda.dropout_mask"));
}

}  // namespace

std::vector<KernelSource> ShippedKernels(CompileTarget target) {
  const int arch = 10 * target.major + target.minor;
  constexpr int kOldestArch = 75;
  if (arch < kOldestArch) return {};
  core::DeviceFacts facts = FactsOf(arch);
  // Rows that need them also need wgmma, which plain sm_90 code cannot have.
  facts.cuda.has_tensor_maps = target.arch_specific;
  std::vector<KernelSource> kernels;
  for (const KernelRow& row : core::KernelRows()) {
    const bool has_tiles = row.op == Op::kForward || row.op == Op::kBackward;
    if (row.backend != core::Backend::kCuda || !has_tiles) continue;
    for (const Bundle& bundle : kBundles) {
      if (IsChosen(row, bundle, facts)) AddRow(row, bundle, &kernels);
    }
  }
  AddHelpers(&kernels);
  return kernels;
}

}  // namespace heed::cuda
