#include "cpu/decode_task.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/kv_row.h"
#include "cpu/decode_block.h"
#include "device/dropout.h"
#include "device/softmax.h"
#include "device/split.h"

namespace heed::cpu {
namespace {

int ElementIndex(core::DType dtype) {
  return dtype == core::DType::kF32 ? 0 : dtype == core::DType::kF16 ? 1 : 2;
}

void LoadQueries(const DecodeContext& context, const DecodeRows& rows,
                 const DecodeScratch& scratch) {
  const core::ForwardProblem& attention = context.problem.attention;
  const core::Shape& shape = attention.shape;
  for (int row = 0; row < rows.num_rows; ++row) {
    const std::int64_t token = rows.Token(context.problem, row);
    const std::int64_t q_head = rows.QHead(context.problem, row);
    UnpackArgs args = {};
    args.num_elems = shape.head_dim;
    args.destination = scratch.q + row * scratch.q_stride_elems;
    if (context.rotated_q != nullptr) {
      const std::int64_t index = (rows.task.batch * shape.max_q_len + token) * shape.num_q_heads;
      args.row = context.rotated_q + (index + q_head) * shape.head_dim;
      context.kernel.unpack[kElementF32](args);
      continue;
    }
    args.row = static_cast<const std::uint8_t*>(attention.q.data) +
               attention.q.OffsetElems(rows.task.batch, token, q_head) *
                   static_cast<std::int64_t>(core::DTypeBytes(attention.q.dtype));
    context.kernel.unpack[kElementF32 + ElementIndex(attention.q.dtype)](args);
  }
}

// Keys of the task's part that some of its rows see.
device::KeyRange KeysOfTask(const DecodeContext& context, const DecodeRows& rows) {
  const core::DecodeProblem& problem = context.problem;
  const device::KeyRange part =
      device::SplitKeys(problem.KeysOfAny(rows.sequence), kDecodeBlock,
                        context.tasks.num_parts(rows.task.batch), rows.task.part);
  const device::KeyRange first = problem.VisibleKeys(rows.sequence, rows.Token(problem, 0));
  const device::KeyRange last =
      problem.VisibleKeys(rows.sequence, rows.Token(problem, rows.num_rows - 1));
  return {std::max(part.begin, first.begin), std::min(part.end, std::max(first.end, last.end))};
}

// The rows of every head of a task and where their state is.
struct TaskHead {
  DecodeRows rows;
  DecodeScratch scratch;
};
using TaskHeads = std::array<TaskHead, static_cast<std::size_t>(kTaskRows)>;

void Attend(const DecodeContext& context, std::int64_t num_heads, TaskHeads& heads) {
  const DecodeScratch& scratch = heads[0].scratch;
  const std::int64_t num_rows = num_heads * heads[0].rows.num_rows;
  std::fill_n(scratch.o, num_rows * scratch.o_stride_elems, 0.0f);
  std::fill_n(scratch.max_log2, num_rows, -device::kInfinity);
  std::fill_n(scratch.sum, num_rows, 0.0f);
  const device::KeyRange keys = KeysOfTask(context, heads[0].rows);
  if (keys.begin >= keys.end) return;
  for (std::int64_t n = 0; n < num_heads; ++n) {
    const TaskHead& head = heads[static_cast<std::size_t>(n)];
    LoadQueries(context, head.rows, head.scratch);
    if (UsesWords(context)) PrepareWords(context, head.rows, head.scratch);
  }
  const auto block_at = [&](std::int64_t begin) {
    const std::int64_t grid_end = (begin / kDecodeBlock + 1) * kDecodeBlock;
    return device::KeyRange{begin, std::min<std::int64_t>(keys.end, grid_end)};
  };
  for (device::KeyRange block = block_at(keys.begin); block.begin < keys.end;) {
    const device::KeyRange next = block_at(block.end);
    for (std::int64_t n = 0; n < num_heads; ++n) {
      const TaskHead& head = heads[static_cast<std::size_t>(n)];
      RunDecodeBlock(context, head.rows, {block, next, n, num_heads}, head.scratch);
    }
    block = next;
  }
}

// o is not normalised.
struct FinishedRow {
  int row;
  const float* o;
  device::SoftmaxState softmax;
};

// Adds the sink, normalises, writes o and lse.
void StoreRow(const DecodeContext& context, const DecodeRows& rows, const FinishedRow& finished) {
  const core::ForwardProblem& attention = context.problem.attention;
  const std::int64_t token = rows.Token(context.problem, finished.row);
  const std::int64_t q_head = rows.QHead(context.problem, finished.row);
  device::SoftmaxState softmax = finished.softmax;
  float factor = device::KeepScale(attention.score.dropout.drop_threshold);
  if (attention.score.sinks.present()) {
    factor *= device::AbsorbSink(&softmax, attention.score.sinks.At(0, q_head));
  }
  factor *= device::InverseSum(softmax);
  const core::RowsView& o = attention.o;
  void* row =
      static_cast<std::uint8_t*>(o.data) + o.OffsetElems(rows.task.batch, token, q_head) *
                                               static_cast<std::int64_t>(core::DTypeBytes(o.dtype));
  context.kernel.store_row[ElementIndex(o.dtype)](
      {finished.o, factor, row, attention.shape.head_dim_v});
  if (!attention.lse.present()) return;
  // A row whose scores are all NaN has a sum but, as maxima skip NaN, no maximum.
  const float lse = std::isnan(softmax.sum) ? softmax.sum : device::LseLn(softmax);
  static_cast<float*>(
      attention.lse.data)[attention.lse.OffsetElems(rows.task.batch, q_head, token)] = lse;
}

void StorePartial(const DecodeContext& context, const DecodeRows& rows,
                  const DecodeScratch& scratch) {
  const std::int64_t head_dim_v = context.problem.attention.shape.head_dim_v;
  const std::int64_t first = context.tasks.PartialRow(rows.task);
  for (int row = 0; row < rows.num_rows; ++row) {
    std::copy_n(scratch.o + row * scratch.o_stride_elems, head_dim_v,
                context.partial_o + (first + row) * head_dim_v);
    context.partial_softmax[first + row] = {scratch.max_log2[row], scratch.sum[row]};
  }
}

// Parts in index order, whoever merges them.
void MergeRow(const DecodeContext& context, const DecodeRows& rows, int row,
              const DecodeScratch& scratch) {
  const std::int64_t head_dim_v = context.problem.attention.shape.head_dim_v;
  const std::int64_t num_parts = context.tasks.num_parts(rows.task.batch);
  core::DecodeTask part_task = rows.task;
  const auto partial_row = [&](std::int64_t part) {
    part_task.part = part;
    return context.tasks.PartialRow(part_task) + row;
  };
  float max_log2 = -device::kInfinity;
  for (std::int64_t part = 0; part < num_parts; ++part) {
    max_log2 = std::max(max_log2, context.partial_softmax[partial_row(part)].max_log2);
  }
  float sum = 0.0f;
  std::fill_n(scratch.o, scratch.o_stride_elems, 0.0f);
  for (std::int64_t part = 0; part < num_parts; ++part) {
    const std::int64_t at = partial_row(part);
    const PartialSoftmax& softmax = context.partial_softmax[at];
    const float weight = device::RescaleFactor(softmax.max_log2, max_log2);
    sum += weight * softmax.sum;  // a NaN stays one, whatever its weight
    const float* o = context.partial_o + at * head_dim_v;
    if (weight == 0.0f) continue;
    for (std::int64_t d = 0; d < head_dim_v; ++d) scratch.o[d] += weight * o[d];
  }
  StoreRow(context, rows, {row, scratch.o, {max_log2, sum}});
}

// Stores the rows of one head, or their partial result; the last part to arrive merges all.
void FinishHead(const DecodeContext& context, const DecodeRows& rows,
                const DecodeScratch& scratch) {
  const std::int64_t num_parts = context.tasks.num_parts(rows.task.batch);
  if (num_parts == 1) {
    for (int row = 0; row < rows.num_rows; ++row) {
      StoreRow(context, rows,
               {row,
                scratch.o + row * scratch.o_stride_elems,
                {scratch.max_log2[row], scratch.sum[row]}});
    }
    return;
  }
  StorePartial(context, rows, scratch);
  // Release: this part's results; acquire: those of all others.
  const std::uint32_t arrived =
      context.arrivals[context.tasks.TileIndex(rows.task)].fetch_add(1, std::memory_order_acq_rel);
  if (arrived + 1 != static_cast<std::uint32_t>(num_parts)) return;
  for (int row = 0; row < rows.num_rows; ++row) MergeRow(context, rows, row, scratch);
}

}  // namespace

DecodeRows RowsOfTask(const DecodeContext& context, const core::DecodeTask& task) {
  DecodeRows rows;
  rows.task = task;
  rows.sequence = context.problem.SequenceAt(task.batch);
  rows.first_row = task.tile * kDecodeRows;
  rows.num_rows = static_cast<int>(
      std::min<std::int64_t>(kDecodeRows, context.tasks.rows_per_head() - rows.first_row));
  return rows;
}

void RunDecodeTask(const DecodeContext& context, const core::DecodeTask& task,
                   const DecodeScratch& scratch) {
  const std::int64_t key_steps = context.problem.k.payload_elems / core::kInterleavedBytes;
  TaskHeads heads;
  for (std::int64_t n = 0; n < task.num_heads; ++n) {
    core::DecodeTask of_head = task;
    of_head.kv_head += n;
    TaskHead& head = heads[static_cast<std::size_t>(n)];
    head.rows = RowsOfTask(context, of_head);
    head.scratch = SkipRows(scratch, n * head.rows.num_rows, key_steps);
  }
  Attend(context, task.num_heads, heads);
  for (std::int64_t n = 0; n < task.num_heads; ++n) {
    const TaskHead& head = heads[static_cast<std::size_t>(n)];
    FinishHead(context, head.rows, head.scratch);
  }
}

}  // namespace heed::cpu
