#include "core/build/paging.h"

#include <cinttypes>
#include <limits>

#include "device/prelude.h"

namespace heed::core {
namespace {
constexpr AxisNames kBlockTable = {2, {"batch", "max_pages"}};
}  // namespace

Status ReadBlockTable(const ForwardArgs& args, const Operands& operands, TensorReader* reader,
                      ForwardProblem* problem) {
  TensorInfo table;
  HEED_RETURN_IF_ERROR(
      reader->Required("paging.block_table", args.paging.block_table, kBlockTable, &table));
  HEED_RETURN_IF_ERROR(RequireDType(table, {DType::kI32}));
  if (table.shape[0] != problem->shape.batch) {
    return InvalidArgument(table.AxisText(0) +
                           Format(": must be the batch, %" PRId64, problem->shape.batch));
  }
  if (table.data == nullptr && !table.empty() && IsHostDevice(table.device)) {
    return InvalidArgument("paging.block_table.data = NULL: the plan reads host block tables");
  }
  BlockTableView& view = problem->block_table;
  view.data = static_cast<const std::int32_t*>(table.data);
  view.batch_stride_elems = table.stride_elems[0];
  view.page_stride_elems = table.stride_elems[1];
  view.page_slots = operands.k.shape[1];
  view.num_pages = operands.k.shape[0];
  view.max_pages = table.shape[1];
  view.is_present = true;
  return {};
}

std::int64_t CapacityRows(const BlockTableView& table) {
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(table.max_pages, table.page_slots, &rows)) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return rows;
}

Status CheckBlockTableEntries(const BlockTableView& table, const IndexView& seqused_kv,
                              std::int64_t batch, const TensorInfo& pool) {
  for (std::int64_t sequence = 0; sequence < batch; ++sequence) {
    const std::int64_t rows = seqused_kv.At(sequence);
    if (rows == 0) continue;
    const std::int64_t pages = device::CeilDiv(rows, table.page_slots);
    for (std::int64_t index = 0; index < pages; ++index) {
      const std::int32_t page = table.At(sequence, index);
      if (page >= 0 && page < table.num_pages) continue;
      return InvalidArgument(Format("paging.block_table[%" PRId64 "][%" PRId64
                                    "] = %d: must be below %s and not negative",
                                    sequence, index, page, pool.AxisText(0).c_str()));
    }
  }
  return {};
}

}  // namespace heed::core
