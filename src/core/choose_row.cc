#include "core/choose_row.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <optional>

#include "core/build/exec.h"
#include "core/build/int8.h"
#include "core/tune/table.h"

namespace heed::core {
namespace {

// Stages of the filter in order: a row that fails later is nearer to the request.
enum class Stage {
  kBackend,
  kDType,
  kHeadDim,
  kProblem,
  kTarget,
  kForcedTarget,
  kForcedKernel,
  kSharedMemory,
  kFits
};

// What speaks against a row, found without building a text: the planner asks this of every row in
// every call.
bool TakesDType(const KernelRow& row, DType dtype) {
  return row.dtype == DType::kInvalid || row.dtype == dtype;
}

bool IsTooOld(const KernelRow& row, const CudaFacts& facts) {
  return facts.compute_capability < row.cuda.min_compute_capability;
}

// Rows of this family use wgmma, which only sm_90a has, and tensor maps.
bool IsHopperRow(const KernelRow& row) {
  return row.backend == Backend::kCuda && row.cuda.min_compute_capability == 90;
}

bool RunsHere(const KernelRow& row, const DeviceFacts& facts) {
  if (IsHopperRow(row)) return facts.cuda.compute_capability == 90 && facts.cuda.has_tensor_maps;
  if (row.backend == Backend::kCuda) return !IsTooOld(row, facts.cuda);
  return row.cpu_target == CpuTarget::kNone ||
         facts.has_cpu_target[static_cast<std::size_t>(row.cpu_target)];
}

std::size_t SharedBytesOf(const KernelRow& row, const RowRequest& request, const CudaFacts& facts) {
  if (row.backend != Backend::kCuda || facts.planner.shared_bytes == nullptr) return 0;
  return facts.planner.shared_bytes(row, request.head_dim_qk, request.head_dim_v);
}

const char* WhyNotProblem(const KernelRow& row, const RowRequest& request, const CudaFacts& facts) {
  if (row.backend == Backend::kCpu && row.dtype == DType::kI8 && request.forward != nullptr) {
    return Int8Objection(*request.forward);
  }
  if (row.backend != Backend::kCuda) return nullptr;
  const CudaPlanner& planner = facts.planner;
  if (request.forward != nullptr && planner.objection != nullptr) {
    return planner.objection(row, *request.forward);
  }
  if (request.backward != nullptr && planner.backward_objection != nullptr) {
    return planner.backward_objection(row, *request.backward);
  }
  if (request.decode != nullptr && planner.decode_objection != nullptr) {
    return planner.decode_objection(row, *request.decode);
  }
  if (request.quantize_kv != nullptr && planner.quantize_kv_objection != nullptr) {
    return planner.quantize_kv_objection(*request.quantize_kv);
  }
  return nullptr;
}

constexpr std::int32_t kOldestDecodeFamily = 80;

// Helpers are the same for every family.
bool IsOfOtherFamily(const KernelRow& row, const CudaFacts& facts) {
  // Decode rows of all families run beside each other: only those of newer ones go.
  if (row.backend == Backend::kCuda && row.op == Op::kDecode) {
    return facts.forced_family != 0 && row.cuda.min_compute_capability > facts.forced_family &&
           row.cuda.min_compute_capability > kOldestDecodeFamily;
  }
  return row.backend == Backend::kCuda && (row.op == Op::kForward || row.op == Op::kBackward) &&
         facts.forced_family != 0 && row.cuda.min_compute_capability != facts.forced_family;
}

bool IsForcedElsewhere(const KernelRow& row, const RowRequest& request) {
  return request.exec.forced_kernel != nullptr &&
         std::strcmp(request.exec.forced_kernel, row.id) != 0;
}

Stage StageOf(const KernelRow& row, const RowRequest& request, const DeviceFacts& facts) {
  if (row.backend != BackendFromAbi(request.exec.backend)) return Stage::kBackend;
  if (!TakesDType(row, request.dtype)) return Stage::kDType;
  if (request.head_dim > row.max_head_dim) return Stage::kHeadDim;
  if (WhyNotProblem(row, request, facts.cuda) != nullptr) return Stage::kProblem;
  if (!RunsHere(row, facts)) return Stage::kTarget;
  if (facts.forced_cpu_target != CpuTarget::kNone && row.cpu_target != CpuTarget::kNone &&
      row.cpu_target != facts.forced_cpu_target) {
    return Stage::kForcedTarget;
  }
  if (IsOfOtherFamily(row, facts.cuda)) return Stage::kForcedTarget;
  if (IsForcedElsewhere(row, request)) return Stage::kForcedKernel;
  if (SharedBytesOf(row, request, facts.cuda) > facts.cuda.max_shared_bytes) {
    return Stage::kSharedMemory;
  }
  return Stage::kFits;
}

std::string WhyNoTarget(CpuTarget target, const DeviceFacts& facts) {
  const char* why = facts.why_no_cpu_target[static_cast<std::size_t>(target)];
  return why != nullptr ? why : Format("this machine lacks %s", CpuTargetName(target));
}

std::string ReasonAt(Stage stage, const KernelRow& row, const RowRequest& request,
                     const DeviceFacts& facts) {
  switch (stage) {
    case Stage::kBackend:
      return Format("runs when exec.backend is %s", BackendName(row.backend));
    case Stage::kDType:
      return Format("takes %s", DTypeName(row.dtype));
    case Stage::kHeadDim:
      return Format("head dim %" PRId64 " is above its %" PRId64, request.head_dim,
                    row.max_head_dim);
    case Stage::kProblem:
      return WhyNotProblem(row, request, facts.cuda);
    case Stage::kTarget:
      if (IsHopperRow(row) && facts.cuda.compute_capability == 90) {
        return "needs cuTensorMapEncodeTiled, a driver of CUDA 12 or newer";
      }
      return row.backend == Backend::kCuda
                 ? Format("needs sm_%d, this GPU is sm_%d", row.cuda.min_compute_capability,
                          facts.cuda.compute_capability)
                 : WhyNoTarget(row.cpu_target, facts);
    case Stage::kForcedTarget:
      return row.backend == Backend::kCuda
                 ? Format("HEED_CUDA_FAMILY forces sm%d", facts.cuda.forced_family)
                 : Format("HEED_CPU_TARGET forces %s", CpuTargetName(facts.forced_cpu_target));
    case Stage::kForcedKernel:
      return "another kernel is forced";
    case Stage::kSharedMemory:
      return Format("needs %zu bytes of shared memory, this GPU offers %zu",
                    SharedBytesOf(row, request, facts.cuda), facts.cuda.max_shared_bytes);
    case Stage::kFits:
      break;
  }
  return {};
}

// Rows that these tensors could not run on whatever was asked, or only by being copied to another
// device: not worth a line each.
bool NeedsOtherDevice(const KernelRow& row, const RowRequest& request) {
  const bool has_gpu_row = row.backend == Backend::kCuda || row.backend == Backend::kWebgpu;
  const Backend backend = BackendFromAbi(request.exec.backend);
  const bool has_gpu_tensors = backend == Backend::kCuda || backend == Backend::kWebgpu;
  return row.backend != backend && (has_gpu_row || has_gpu_tensors);
}

struct Objection {
  Stage stage;
  std::string reason;
};

std::optional<Objection> ObjectionTo(const KernelRow& row, const RowRequest& request,
                                     const DeviceFacts& facts) {
  const Stage stage = StageOf(row, request, facts);
  if (stage == Stage::kFits) return std::nullopt;
  return Objection{stage, ReasonAt(stage, row, request, facts)};
}

// On Intel's cores vdpbf16ps runs at half the flops of fp32 multiply-adds (Xeon, Sapphire Rapids,
// one thread: 70 and 147 GFLOP/s), on AMD's at twice. Where it is slow its row goes below that of
// plain AVX-512, which widens bf16 to fp32, and stays above AVX2.
constexpr std::int32_t kSlowBf16DotRank = 25;

bool IsSlowBf16Dot(const KernelRow& row, const DeviceFacts& facts) {
  // Decode and int8 rows of this target use its integer dot products.
  return row.op != Op::kDecode && row.dtype != DType::kI8 &&
         row.cpu_target == CpuTarget::kAvx512Bf16 && !facts.has_fast_bf16_dot;
}

// A CUDA row tuned for this kind of problem goes above the general ones of its head dim, and below
// them where it is tuned for another kind. Ranks of neighbouring head dims are 10 apart.
std::int32_t CudaUseBonus(CudaUse of_row, CudaUse of_request) {
  if (of_row == CudaUse::kAny) return 0;
  // Above rows of newer families too: those leave most of the GPU idle.
  constexpr std::int32_t kFewTasksBonus = 200;
  if (of_row == CudaUse::kFewTasks && of_request == CudaUse::kFewTasks) return kFewTasksBonus;
  return of_row == of_request ? 2 : -5;
}

// A row tuned for several CTAs on a multiprocessor whose shared memory holds fewer here goes below
// the rows of the same head dim that need less.
constexpr std::int32_t kCrowdedPenalty = 4;

bool HasRoomForItsCtas(const KernelRow& row, const RowRequest& request, const CudaFacts& facts) {
  const auto resident_shared_bytes = facts.planner.resident_shared_bytes;
  return resident_shared_bytes == nullptr ||
         resident_shared_bytes(row, request.head_dim_qk, request.head_dim_v) <=
             facts.max_shared_bytes;
}

// The rank that a row has at most, found without asking how much shared memory it takes.
std::int32_t HighestRank(const KernelRow& row, const RowRequest& request,
                         const DeviceFacts& facts) {
  if (row.backend == Backend::kCuda) {
    return row.rank + CudaUseBonus(row.cuda.use, request.cuda_use);
  }
  return IsSlowBf16Dot(row, facts) ? kSlowBf16DotRank : row.rank;
}

std::int32_t RankHere(const KernelRow& row, const RowRequest& request, const DeviceFacts& facts) {
  const std::int32_t rank = HighestRank(row, request, facts);
  if (row.backend != Backend::kCuda || HasRoomForItsCtas(row, request, facts.cuda)) return rank;
  return rank - kCrowdedPenalty;
}

const char* UseText(CudaUse use) {
  switch (use) {
    case CudaUse::kFull:
      return "calls without a right bound, large softcap, ALiBi, bias or mask, or with long "
             "sequences";
    case CudaUse::kCausal:
      return "calls with a right bound, large softcap, ALiBi, bias or mask, or with short "
             "sequences";
    case CudaUse::kFewTasks:
      return "few query tiles";
    case CudaUse::kAny:
      break;
  }
  return "any call";
}

std::string WhyOutranked(const KernelRow& row, const Plan& plan, const RowRequest& request,
                         const DeviceFacts& facts) {
  if (plan.tuned != nullptr && plan.tuned->row != plan.tuned->default_row) {
    return "tuning chose another row";
  }
  if (row.backend == Backend::kCuda && row.cuda.use != CudaUse::kAny &&
      row.cuda.use != request.cuda_use) {
    return Format("ranks below the chosen row: it is tuned for %s", UseText(row.cuda.use));
  }
  if (!IsSlowBf16Dot(row, facts)) return "ranks below the chosen row";
  return "ranks below the chosen row: bf16 dot products are slower than fp32 on this CPU";
}

bool IsSlowerSubstitute(const KernelRow& chosen, const RowRequest& request,
                        const DeviceFacts& facts) {
  // CUDA rows differ by tuning; what is slower about a call is the planner's remark.
  if (chosen.backend == Backend::kCuda) return false;
  for (const KernelRow& row : KernelRows()) {
    if (row.op == chosen.op && row.backend == chosen.backend &&
        RankHere(row, request, facts) > RankHere(chosen, request, facts) &&
        TakesDType(row, request.dtype) && RunsHere(row, facts)) {
      return true;
    }
  }
  if (chosen.cpu_target != CpuTarget::kGeneric) return false;
  for (int index = static_cast<int>(CpuTarget::kGeneric) + 1; index < kNumCpuTargets; ++index) {
    const auto target = static_cast<CpuTarget>(index);
    // Dot products alone make no other kernel faster.
    if (target == CpuTarget::kNeonDot || target == CpuTarget::kNeonBf16) continue;
    if (facts.has_cpu_target[static_cast<std::size_t>(index)]) return true;
  }
  return false;
}

struct Candidate {
  const KernelRow* row;
  Objection objection;
};

// For an operation without rows: those of other operations that would run this dtype here.
std::vector<Candidate> RowsOfOtherOps(const RowRequest& request, const DeviceFacts& facts) {
  std::vector<Candidate> rows;
  for (const KernelRow& row : KernelRows()) {
    if (ObjectionTo(row, request, facts)) continue;
    rows.push_back({&row, {Stage::kBackend, Format("runs %s", OpName(row.op))}});
  }
  return rows;
}

// Nearer to the request: refused at a later stage or, at the same one, by a milder limit.
bool IsNearer(const Candidate& a, const Candidate& b) {
  if (a.objection.stage != b.objection.stage) return a.objection.stage > b.objection.stage;
  if (a.objection.stage == Stage::kHeadDim) return a.row->max_head_dim > b.row->max_head_dim;
  return a.row->cuda.min_compute_capability < b.row->cuda.min_compute_capability;
}

// The rows that came closest, with what spoke against each.
Status NothingFits(const RowRequest& request, std::vector<Candidate> rejected) {
  constexpr std::size_t kNearestRows = 3;
  std::stable_sort(rejected.begin(), rejected.end(), IsNearer);
  std::string text = "no kernel row for " + RequestText(request);
  if (!rejected.empty()) text += "; nearest: ";
  for (std::size_t index = 0; index < std::min(kNearestRows, rejected.size()); ++index) {
    if (index > 0) text += ", ";
    text += Format("%s (%s)", rejected[index].row->id, rejected[index].objection.reason.c_str());
  }
  return Unsupported(std::move(text));
}

// Backends that cannot run here, and a forced target that this machine lacks.
Status CheckAvailable(const RowRequest& request, const DeviceFacts& facts) {
  const Backend backend = BackendFromAbi(request.exec.backend);
  if (backend == Backend::kWebgpu && !facts.webgpu.why_unavailable.empty()) {
    return {HEED_UNAVAILABLE, "the WebGPU backend: " + facts.webgpu.why_unavailable};
  }
  if (backend == Backend::kCuda && !facts.cuda.why_unavailable.empty()) {
    return {HEED_UNAVAILABLE, "the CUDA backend: " + facts.cuda.why_unavailable};
  }
  const CpuTarget forced = facts.forced_cpu_target;
  if (backend == Backend::kCpu && forced != CpuTarget::kNone &&
      !facts.has_cpu_target[static_cast<std::size_t>(forced)]) {
    return {HEED_UNAVAILABLE, Format("HEED_CPU_TARGET = %s: %s", CpuTargetName(forced),
                                     WhyNoTarget(forced, facts).c_str())};
  }
  return {};
}

const KernelRow* HighestRankThatFits(const RowRequest& request, const DeviceFacts& facts) {
  const KernelRow* best = nullptr;
  std::int32_t best_rank = 0;
  const Backend backend = BackendFromAbi(request.exec.backend);
  for (const KernelRow* candidate : KernelRowsOf(request.op)) {
    const KernelRow& row = *candidate;
    if (row.backend != backend) continue;
    if (best != nullptr && HighestRank(row, request, facts) <= best_rank) continue;
    if (StageOf(row, request, facts) != Stage::kFits) continue;
    const std::int32_t rank = RankHere(row, request, facts);
    if (best != nullptr && rank <= best_rank) continue;
    best = &row;
    best_rank = rank;
  }
  return best;
}

// A kernel forced by id either runs or says itself why not.
Status CheckForcedKernel(const RowRequest& request, const DeviceFacts& facts) {
  const char* id = request.exec.forced_kernel;
  if (id == nullptr) return {};
  const KernelRow* row = nullptr;
  HEED_RETURN_IF_ERROR(FindKernel("forced kernel", id, &row));
  if (row->op != request.op) {
    return InvalidArgument(Format("forced kernel = %s: is a row of %s, not of %s", id,
                                  OpName(row->op), OpName(request.op)));
  }
  const std::optional<Objection> objection = ObjectionTo(*row, request, facts);
  if (!objection) return {};
  const heed_status_t code =
      objection->stage == Stage::kTarget || objection->stage == Stage::kSharedMemory
          ? HEED_UNAVAILABLE
          : HEED_UNSUPPORTED;
  return {code, Format("forced kernel = %s: cannot run %s: %s", id, RequestText(request).c_str(),
                       objection->reason.c_str())};
}

}  // namespace

std::string RequestText(const RowRequest& request) {
  std::string text = Format("%s on backend %s", OpName(request.op),
                            BackendName(BackendFromAbi(request.exec.backend)));
  if (request.dtype != DType::kInvalid) text += Format(", %s", DTypeName(request.dtype));
  if (request.head_dim > 0) text += Format(", head dim %" PRId64, request.head_dim);
  return text;
}

std::vector<const KernelRow*> RowsThatFit(const RowRequest& request, const DeviceFacts& facts) {
  ExecOptions exec = request.exec;
  exec.forced_kernel = nullptr;
  const RowRequest any = {
      request.op,         request.dtype,       request.head_dim, exec,
      request.head_dim_v, request.head_dim_qk, request.cuda_use, request.forward,
      request.backward};
  std::vector<const KernelRow*> rows;
  for (const KernelRow* row : KernelRowsOf(any.op)) {
    if (StageOf(*row, any, facts) == Stage::kFits) rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const KernelRow* a, const KernelRow* b) {
    return RankHere(*a, any, facts) > RankHere(*b, any, facts);
  });
  return rows;
}

Status ChooseRow(const RowRequest& request, const DeviceFacts& facts, Plan* plan,
                 std::vector<Rejection>* rejections) {
  HEED_RETURN_IF_ERROR(CheckAvailable(request, facts));
  HEED_RETURN_IF_ERROR(CheckForcedKernel(request, facts));
  const KernelRow* const highest = HighestRankThatFits(request, facts);
  const bool is_tuned = request.tuned != nullptr && request.exec.forced_kernel == nullptr &&
                        StageOf(*request.tuned->row, request, facts) == Stage::kFits;
  const KernelRow* const best = is_tuned ? request.tuned->row : highest;
  plan->tuned = is_tuned ? request.tuned : nullptr;

  std::vector<Candidate> rejected;
  if (best == nullptr || rejections != nullptr) {
    for (const KernelRow& row : KernelRows()) {
      if (row.op != request.op || &row == best || NeedsOtherDevice(row, request)) continue;
      std::optional<Objection> objection = ObjectionTo(row, request, facts);
      if (!objection) {
        objection = Objection{Stage::kForcedKernel, WhyOutranked(row, *plan, request, facts)};
      }
      rejected.push_back({&row, std::move(*objection)});
    }
  }
  if (rejections != nullptr) {
    rejections->clear();
    for (const Candidate& candidate : rejected) {
      rejections->push_back({candidate.row, candidate.objection.reason});
    }
  }
  if (best == nullptr) {
    if (rejected.empty()) rejected = RowsOfOtherOps(request, facts);
    return NothingFits(request, std::move(rejected));
  }
  plan->row = best;
  // A tuned row is faster than the one it stands in for.
  plan->is_slower_substitute = IsSlowerSubstitute(*highest, request, facts);
  if (plan->is_slower_substitute && request.exec.forbid_slower) {
    return Unsupported(Format("exec.forbid_slower: %s is a slower substitute for %s", best->id,
                              RequestText(request).c_str()));
  }
  return {};
}

}  // namespace heed::core
