#include "cuda/problem_args.h"

#include "device/constants.h"

namespace heed::cuda {
namespace {

using core::DType;

WindowBounds BoundsOf(const device::WindowRule& window) {
  if (window.left >= 0) return WindowBounds::kBoth;
  return window.right >= 0 ? WindowBounds::kRightOnly : WindowBounds::kNone;
}

PagingArg PagingArgOf(const core::BlockTableView& table) {
  if (!table.present()) return {};
  return {table.data,       table.batch_stride_elems, table.page_stride_elems,
          table.page_slots, table.num_pages,          table.max_pages};
}

ScoreRuleArg ScoreRuleArgOf(const core::ScoreRule& rule) {
  ScoreRuleArg arg = {};
  arg.scale = static_cast<float>(rule.scale);
  arg.scale_log2 = static_cast<float>(rule.scale * device::kLog2E);
  arg.softcap = static_cast<float>(rule.softcap);
  arg.window = rule.window;
  arg.alibi_slopes = HeadArgOf(rule.alibi_slopes);
  arg.bias = ScoreArgOf(rule.bias);
  arg.mask = ScoreArgOf(rule.mask);
  arg.sinks = HeadArgOf(rule.sinks);
  arg.dropout = {rule.dropout.drop_threshold, rule.dropout.seed, rule.dropout.offset,
                 reinterpret_cast<const u64*>(rule.dropout.device_rng)};
  return arg;
}

// Rows that start at multiples of 16 bytes.
bool IsVector16(const core::RowsView& view) {
  const auto element_bytes = static_cast<std::int64_t>(core::DTypeBytes(view.dtype));
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 &&
         view.batch_stride_elems * element_bytes % 16 == 0 &&
         view.row_stride_elems * element_bytes % 16 == 0 &&
         view.head_stride_elems * element_bytes % 16 == 0;
}

}  // namespace

Element ElementOfDType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return Element::kF16;
    case DType::kBF16:
      return Element::kBF16;
    default:
      return Element::kF32;
  }
}

BiasElement BiasElementOf(const core::ScoreView& bias) {
  if (!bias.present()) return BiasElement::kNone;
  return bias.dtype == DType::kF32 ? BiasElement::kF32 : BiasElement::kSameAsQ;
}

IndexArg IndexArgOf(const core::IndexView& view) {
  return {view.present() ? view.data : nullptr, view.stride_elems};
}

RowsArg RowsArgOf(const core::RowsView& view) {
  return {view.data, {view.batch_stride_elems, view.row_stride_elems, view.head_stride_elems}};
}

LseArg LseArgOf(const core::LseView& view) {
  return {static_cast<float*>(view.data), view.batch_stride_elems, view.head_stride_elems,
          view.row_stride_elems};
}

ScoreArg ScoreArgOf(const core::ScoreView& view) {
  return {view.data,
          {view.stride_elems[0], view.stride_elems[1], view.stride_elems[2], view.stride_elems[3]}};
}

HeadArg HeadArgOf(const core::HeadView& view) {
  return {view.data, view.batch_stride_elems, view.head_stride_elems};
}

ProblemArg ProblemArgOf(const core::ForwardProblem& problem, ErrorCounters* errors) {
  const core::Shape& shape = problem.shape;
  ProblemArg arg = {};
  arg.batch = shape.batch;
  arg.num_q_heads = static_cast<i32>(shape.num_q_heads);
  arg.num_kv_heads = static_cast<i32>(shape.num_kv_heads);
  arg.group = static_cast<i32>(shape.group);
  arg.head_dim = static_cast<i32>(shape.head_dim);
  arg.head_dim_v = static_cast<i32>(shape.head_dim_v);
  arg.lengths = {IndexArgOf(problem.cu_seqlens_q),
                 IndexArgOf(problem.cu_seqlens_kv),
                 IndexArgOf(problem.seqused_q),
                 IndexArgOf(problem.seqused_kv),
                 shape.max_q_len,
                 shape.max_kv_len,
                 shape.total_q_rows,
                 shape.total_kv_rows};
  arg.paging = PagingArgOf(problem.block_table);
  arg.score = ScoreRuleArgOf(problem.score);
  arg.errors = errors;
  return arg;
}

int PadHeadDim(std::int64_t head_dim) { return static_cast<int>((head_dim + 15) / 16 * 16); }

RowAccess AccessOf(std::initializer_list<const core::RowsView*> operands, std::int64_t head_dim,
                   std::int64_t head_dim_v) {
  for (const core::RowsView* operand : operands) {
    const auto elements = static_cast<std::int64_t>(16 / core::DTypeBytes(operand->dtype));
    if (head_dim % elements != 0 || head_dim_v % elements != 0 || !IsVector16(*operand)) {
      return RowAccess::kElement;
    }
  }
  return RowAccess::kVector16;
}

KernelTraits TileTraitsOf(const core::KernelRow& row, std::int64_t head_dim,
                          std::int64_t head_dim_v) {
  KernelTraits traits;
  traits.element = static_cast<int>(ElementOfDType(row.dtype));
  traits.head_dim = PadHeadDim(head_dim);
  traits.head_dim_v = PadHeadDim(head_dim_v);
  traits.tile_q = row.tile_q_rows;
  traits.tile_kv = row.tile_kv_rows;
  traits.num_warps = row.cuda.num_warps;
  traits.kv_groups = row.cuda.kv_groups;
  traits.num_stages = row.cuda.num_stages;
  traits.variant = row.cuda.variant;
  return traits;
}

KernelTraits TraitsOf(const core::KernelRow& row, const core::ForwardProblem& problem) {
  const core::ScoreRule& rule = problem.score;
  KernelTraits traits = TileTraitsOf(row, problem.shape.head_dim, problem.shape.head_dim_v);
  traits.window = static_cast<int>(BoundsOf(rule.window));
  traits.bias = static_cast<int>(BiasElementOf(rule.bias));
  traits.softcap = rule.softcap > 0.0;
  traits.alibi = rule.alibi_slopes.present();
  traits.mask = rule.mask.present();
  traits.sinks = rule.sinks.present();
  traits.dropout = rule.dropout.active();
  traits.varlen = problem.has_lengths();
  traits.paged = problem.block_table.present();
  return traits;
}

}  // namespace heed::cuda
