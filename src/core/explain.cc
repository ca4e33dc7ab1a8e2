#include "core/explain.h"

#include <cinttypes>

#include "core/build/exec.h"
#include "core/choose_row.h"
#include "core/tune/table.h"
#include "device/dropout.h"

namespace heed::core {
namespace {

std::string WindowText(const device::WindowRule& window) {
  if (window.left == device::kUnlimited && window.right == device::kUnlimited) return {};
  const char* alignment =
      window.alignment == device::Alignment::kTopLeft ? "top-left" : "bottom-right";
  if (window.left == device::kUnlimited && window.right == 0) {
    return Format(", causal (%s)", alignment);
  }
  return Format(", window (%lld, %lld) (%s)", window.left, window.right, alignment);
}

std::string LayoutText(const ForwardProblem& problem) {
  const char* q = problem.q_packing == Packing::kPacked ? "packed" : "dense";
  const char* kv = problem.block_table.present()            ? "paged"
                   : problem.kv_packing == Packing::kPacked ? "packed"
                                                            : "dense";
  return Format("%s q, %s kv", q, kv);
}

std::string ScalesText(const char* name, const ScaleView& scales, const char* without_blocks) {
  if (!scales.present()) return {};
  if (scales.block_rows == 0) return Format(", %s scales per %s", name, without_blocks);
  return Format(", %s scales per %" PRId64 " rows", name, scales.block_rows);
}

// Empty unless q, k and v are int8.
std::string Int8Text(const ForwardProblem& problem) {
  if (problem.dtype() != DType::kI8) return {};
  const Int8Rule& rule = problem.int8;
  const char* values = rule.values == HEED_INT8_VALUES_U8     ? "u8"
                       : rule.values == HEED_INT8_VALUES_BF16 ? "bf16"
                                                              : "f32";
  return Format("int8: %s softmax, P V at least %s, o %s",
                rule.softmax == HEED_INT8_SOFTMAX_FIXED ? "fixed" : "float", values,
                DTypeName(problem.o.dtype)) +
         ScalesText("q", rule.q, "head") + ScalesText("k", rule.k, "head") +
         ScalesText("v", rule.v, "channel") + "\n";
}

// "Sq" is the longest sequence when q is packed, "Skv" likewise.
std::string DescribeAs(Op op, const ForwardProblem& problem) {
  const Shape& shape = problem.shape;
  std::string text =
      Format("%s on backend %s, %s\n", OpName(op),
             BackendName(BackendFromAbi(problem.exec.backend)), DTypeName(problem.dtype()));
  text += Format("shape: B %" PRId64 ", Hq %" PRId64 ", Hkv %" PRId64 ", Sq %" PRId64
                 ", Skv %" PRId64 ", D %" PRId64 ", Dv %" PRId64 "; %s%s\n",
                 shape.batch, shape.num_q_heads, shape.num_kv_heads, shape.max_q_len,
                 shape.max_kv_len, shape.head_dim, shape.head_dim_v, LayoutText(problem).c_str(),
                 problem.lse.present() ? ", with lse" : "");
  return text + DescribeRule(problem.score) + Int8Text(problem);
}

// "" when ranks decided.
std::string TunedText(const Plan& plan) {
  if (plan.tuned == nullptr) return {};
  constexpr double kMicroseconds = 1e6;
  const tune::TunedRow& tuned = *plan.tuned;
  if (tuned.row == tuned.default_row) {
    return Format("tuning: measured %.4g us, and no other row faster\n",
                  kMicroseconds * tuned.row_seconds);
  }
  return Format("tuning: chose this row, measured %.4g us against %.4g us of %s\n",
                kMicroseconds * tuned.row_seconds, kMicroseconds * tuned.default_seconds,
                tuned.default_row->id);
}

}  // namespace

std::string DescribeRule(const ScoreRule& rule) {
  std::string text = Format("rule: scale %.9g", rule.scale);
  if (rule.softcap > 0.0) text += Format(", softcap %.9g", rule.softcap);
  text += WindowText(rule.window);
  if (rule.alibi_slopes.present()) text += ", alibi";
  if (rule.bias.present()) text += Format(", bias %s", DTypeName(rule.bias.dtype));
  if (rule.mask.present()) text += ", mask";
  if (rule.sinks.present()) text += ", sinks";
  if (rule.dropout.active()) {
    text += Format(", dropout %u/%u", rule.dropout.drop_threshold, device::kDropoutSteps);
  }
  return text + "\n";
}

std::string Describe(const ForwardProblem& problem) { return DescribeAs(Op::kForward, problem); }

std::string Describe(const BackwardProblem& problem) {
  return DescribeAs(Op::kBackward, problem.forward);
}

std::string Describe(const CombineProblem& problem) {
  const RowRequest request = {Op::kCombine, problem.o.dtype, 0, problem.exec, 0, 0, CudaUse::kAny};
  return Format("%s\nshape: parts %" PRId64 ", B %" PRId64 ", Hq %" PRId64 ", Sq %" PRId64
                ", Dv %" PRId64 "\n",
                RequestText(request).c_str(), problem.num_parts, problem.batch, problem.num_q_heads,
                problem.q_len, problem.head_dim_v);
}

std::string Describe(const DropoutMaskProblem& problem) {
  const RowRequest request = {Op::kDropoutMask, problem.mask.dtype, 0, problem.exec, 0, 0,
                              CudaUse::kAny};
  return Format("%s\nshape: B %" PRId64 ", Hq %" PRId64 ", Sq %" PRId64 ", Skv %" PRId64 "\n",
                RequestText(request).c_str(), problem.batch, problem.num_q_heads, problem.q_len,
                problem.kv_len);
}

std::string ExplainPlan(const std::string& description, const Status& planned, const Plan& plan,
                        const std::vector<Rejection>& rejections) {
  std::string text = description;
  if (planned.ok()) {
    text += Format("kernel: %s%s\n", plan.row->id,
                   plan.is_slower_substitute ? " (a slower substitute)" : "");
    text +=
        Format("tile: %d query rows x %d keys\n", plan.row->tile_q_rows, plan.row->tile_kv_rows);
    text +=
        Format("tasks: %" PRId64 " on %d workers, %" PRId64 " split%s of the keys\n",
               plan.num_tasks, plan.num_workers, plan.num_splits, plan.num_splits == 1 ? "" : "s");
    text += Format("workspace: %zu bytes\n", plan.workspace_bytes);
    text += TunedText(plan);
    if (plan.remark != nullptr) text += Format("note: %s\n", plan.remark);
  } else {
    text += Format("kernel: none: %s: %s\n", StatusName(planned.code()), planned.message().c_str());
  }
  if (!rejections.empty()) text += "rows not chosen:\n";
  for (const Rejection& rejection : rejections) {
    text += Format("  %s: %s\n", rejection.row->id, rejection.reason.c_str());
  }
  return text;
}

}  // namespace heed::core
