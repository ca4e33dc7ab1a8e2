#include "cuda/shipped_kernels.h"

#include <iterator>

#include "core/registry.h"
#include "cuda/arch_limits.h"
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
  bool is_varlen;
};
constexpr Bundle kBundles[] = {
    {"full", false, false}, {"causal", true, false}, {"causal.varlen", true, true}};

ForwardProblem ProblemFor(const KernelRow& row, const Bundle& bundle) {
  // Kernels read the arrays when they run; here they only have to be there.
  static constexpr std::int32_t kOffsets[2] = {};
  ForwardProblem problem;
  for (core::RowsView* view : {&problem.q, &problem.k, &problem.v, &problem.o}) {
    view->dtype = row.dtype;
  }
  problem.shape.head_dim = problem.shape.head_dim_v = row.max_head_dim;
  problem.score.window.right = bundle.is_causal ? 0 : device::kUnlimited;
  if (bundle.is_varlen) {
    problem.cu_seqlens_q = problem.cu_seqlens_kv = {kOffsets, 1, true};
    problem.q_packing = problem.kv_packing = core::Packing::kPacked;
  }
  return problem;
}

KernelSource Labelled(const KernelKey& key, const std::string& label,
                      std::size_t dynamic_shared_bytes = 0) {
  KernelSource source = SourceOf(key);
  source.label = label;
  source.dynamic_shared_bytes = static_cast<int>(dynamic_shared_bytes);
  return source;
}

std::size_t SharedBytesOf(const KernelRow& row) {
  return row.op == Op::kForward ? ForwardSharedBytesOf(row, row.max_head_dim, row.max_head_dim)
                                : BackwardSharedBytesOf(row, row.max_head_dim, row.max_head_dim);
}

void AddForward(const KernelRow& row, std::vector<KernelSource>* kernels) {
  for (const Bundle& bundle : kBundles) {
    kernels->push_back(Labelled(ForwardKeyOf(row, ProblemFor(row, bundle), 1),
                                std::string(row.id) + "." + bundle.label, SharedBytesOf(row)));
  }
}

void AddBackward(const KernelRow& row, std::vector<KernelSource>* kernels) {
  for (const Bundle& bundle : kBundles) {
    BackwardProblem problem;
    problem.forward = ProblemFor(row, bundle);
    for (core::RowsView* view : {&problem.d_o, &problem.dq, &problem.dk, &problem.dv}) {
      view->dtype = row.dtype;
    }
    const std::string label = std::string(row.id) + "." + bundle.label;
    KernelKey key = BackwardKeyOf(row, problem);
    kernels->push_back(Labelled(key, label, SharedBytesOf(row)));
    // The kernels around it do not know about masks.
    if (bundle.is_causal && !bundle.is_varlen) continue;
    key.entry = KernelEntry::kBackwardPre;
    kernels->push_back(Labelled(key, label + ".pre"));
    key.entry = KernelEntry::kBackwardPost;
    kernels->push_back(Labelled(key, label + ".post"));
  }
}

void AddHelpers(std::vector<KernelSource>* kernels) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    kernels->push_back(
        Labelled(CombineKeyOf(dtype, false), std::string("cuda.combine.") + DTypeName(dtype)));
  }
  KernelKey key;
  key.entry = KernelEntry::kDropoutMask;
  kernels->push_back(Labelled(key, "cuda.dropout_mask"));
}

}  // namespace

std::vector<KernelSource> ShippedKernels(CompileTarget target) {
  const int arch = 10 * target.major + target.minor;
  constexpr int kOldestArch = 75;
  if (arch < kOldestArch) return {};
  std::vector<KernelSource> kernels;
  for (const KernelRow& row : core::KernelRows()) {
    if (row.backend != core::Backend::kCuda) continue;
    // A newer GPU has rows of its own and runs older ones only when they are forced.
    const bool is_older_family = row.cuda.min_compute_capability < 80 && arch >= 80;
    if (arch < row.cuda.min_compute_capability || is_older_family) continue;
    if (row.op != Op::kForward && row.op != Op::kBackward) continue;
    // The planner does not choose a row at a head dim whose tile does not fit.
    if (SharedBytesOf(row) > static_cast<std::size_t>(MaxSharedBytes(arch))) continue;
    if (row.op == Op::kForward) AddForward(row, &kernels);
    if (row.op == Op::kBackward) AddBackward(row, &kernels);
  }
  AddHelpers(&kernels);
  return kernels;
}

}  // namespace heed::cuda
