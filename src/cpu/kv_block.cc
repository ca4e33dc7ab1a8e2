#include "cpu/kv_block.h"

#include <algorithm>
#include <cstring>

#include "device/paging.h"

namespace heed::cpu {
namespace {

enum class Operand { kKeys, kValues };

// Rows that lie some KiB apart share few cache sets, so that every tile of a range misses on them
// again: with 8 heads of 128, packing a block costs 8 % of one tile's work and saves up to 20 % of
// each.
constexpr std::int64_t kMinTilesToPack = 2;

std::int64_t RoundDownToStep(std::int64_t key, int group_elems) {
  return key / group_elems * group_elems;
}

// Whether the rows of the range lie at one stride: always, except across pages.
bool IsEvenlyStrided(const core::ForwardProblem& problem, device::KeyRange keys) {
  if (!problem.block_table.present()) return true;
  const std::int64_t page_slots = problem.block_table.page_slots;
  return device::SlotOfToken(keys.begin, page_slots).table_column ==
         device::SlotOfToken(keys.end - 1, page_slots).table_column;
}

const std::uint8_t* RowAt(const core::ForwardProblem& problem, const core::RowsView& view,
                          const HeadSequence& head, std::int64_t token) {
  const std::int64_t offset_elems =
      problem.KvOffsetElems(view, head.sequence, head.batch, token, head.kv_head);
  return static_cast<const std::uint8_t*>(view.data) +
         offset_elems * static_cast<std::int64_t>(core::DTypeBytes(view.dtype));
}

// Packs keys [padded.begin, padded.end) of k or v, those before `begin` as zeros.
struct PackedRows {
  Operand operand;
  device::KeyRange padded;
  std::int64_t begin;
  void* destination;
};
void PackRows(const core::ForwardProblem& problem, const ForwardKernel& kernel,
              const HeadSequence& head, const ScratchLayout& layout, const PackedRows& packed) {
  const bool is_keys = packed.operand == Operand::kKeys;
  const core::RowsView& view = is_keys ? problem.k : problem.v;
  const void* rows[kBlockKeys];
  for (std::int64_t key = packed.padded.begin; key < packed.padded.end; ++key) {
    const bool is_padding = key < packed.begin;
    rows[key - packed.padded.begin] = is_padding ? nullptr : RowAt(problem, view, head, key);
  }
  const PackRowsArgs args{
      .rows = rows,
      .num_rows = packed.padded.end - packed.padded.begin,
      .num_elems = is_keys ? problem.shape.head_dim : problem.shape.head_dim_v,
      .destination = packed.destination,
      .destination_stride_bytes =
          is_keys ? layout.packed_key_stride_bytes : layout.packed_value_stride_bytes,
  };
  (is_keys ? kernel.pack_keys : kernel.pack_values)(args);
}

}  // namespace

void PackKvBlock(const core::ForwardProblem& problem, const ForwardKernel& kernel,
                 const HeadSequence& head, const ScratchLayout& layout, const KvDestination& to) {
  PackRows(problem, kernel, head, layout, {Operand::kKeys, to.keys, to.keys.begin, to.key_rows});
  PackRows(problem, kernel, head, layout,
           {Operand::kValues, to.keys, to.keys.begin, to.value_steps});
}

KvBlock LoadKvBlock(const core::ForwardProblem& problem, const ForwardKernel& kernel,
                    const HeadSequence& head, device::KeyRange keys, std::int64_t num_tiles,
                    const WorkerScratch& scratch) {
  const ScratchLayout& layout = scratch.layout();
  const device::KeyRange padded{RoundDownToStep(keys.begin, kernel.group_elems), keys.end};
  const bool is_even = IsEvenlyStrided(problem, padded);
  const bool packs_spread_rows = num_tiles >= kMinTilesToPack;
  KvBlock block;
  block.keys = padded;

  const auto pack = [&](Operand operand, void* destination) {
    PackRows(problem, kernel, head, layout, {operand, padded, keys.begin, destination});
  };

  const std::int64_t elem_bytes = static_cast<std::int64_t>(core::DTypeBytes(problem.k.dtype));
  if (!MustPackKeys(problem, kernel) && is_even &&
      !(packs_spread_rows && HasSpreadRows(problem.k, problem.shape.head_dim))) {
    block.key_stride_bytes = problem.k.row_stride_elems * elem_bytes;
    block.key_rows = RowAt(problem, problem.k, head, padded.begin);
  } else {
    pack(Operand::kKeys, scratch.keys());
    block.key_stride_bytes = layout.packed_key_stride_bytes;
    block.key_rows = static_cast<const std::uint8_t*>(scratch.keys());
  }
  if (kernel.reads_values_in_place && is_even &&
      !(packs_spread_rows && HasSpreadRows(problem.v, problem.shape.head_dim_v))) {
    block.value_stride_bytes = problem.v.row_stride_elems * elem_bytes;
    block.value_steps = RowAt(problem, problem.v, head, padded.begin);
  } else {
    pack(Operand::kValues, scratch.values());
    block.value_stride_bytes = layout.packed_value_stride_bytes;
    block.value_steps = static_cast<const std::uint8_t*>(scratch.values());
  }
  return block;
}

PrefetchArgs ShareOfRows(const core::ForwardProblem& problem, const HeadSequence& head,
                         device::KeyRange keys, std::int64_t index, std::int64_t count) {
  const std::int64_t num_keys = keys.end - keys.begin;
  if (num_keys <= 0 || !IsEvenlyStrided(problem, keys)) return {};
  const std::int64_t begin = keys.begin + num_keys * index / count;
  const std::int64_t end = keys.begin + num_keys * (index + 1) / count;
  if (begin == end) return {};
  const std::int64_t elem_bytes = static_cast<std::int64_t>(core::DTypeBytes(problem.k.dtype));
  const auto rows_of = [&](const core::RowsView& view, std::int64_t row_elems) {
    return StridedRows{.first = RowAt(problem, view, head, begin),
                       .stride_bytes = view.row_stride_elems * elem_bytes,
                       .row_bytes = row_elems * elem_bytes,
                       .num_rows = end - begin};
  };
  return {.keys = rows_of(problem.k, problem.shape.head_dim),
          .values = rows_of(problem.v, problem.shape.head_dim_v)};
}

KvBlock SubBlock(const KvBlock& block, device::KeyRange keys, int group_elems) {
  const std::int64_t begin = RoundDownToStep(keys.begin, group_elems);
  KvBlock part = block;
  part.keys = {begin, keys.end};
  part.key_rows += (begin - block.keys.begin) * block.key_stride_bytes;
  part.value_steps += (begin - block.keys.begin) / group_elems * block.value_stride_bytes;
  return part;
}

KvBlock WithoutDeadValues(const KvBlock& block, const ForwardKernel& kernel,
                          std::int64_t head_dim_v, const std::uint8_t* is_live,
                          std::uint8_t* destination) {
  const std::int64_t num_keys = block.keys.end - block.keys.begin;
  const std::int64_t stride_bytes = ValueStepBytes(kernel, head_dim_v);
  const int elem_bytes = kernel.group_bytes / kernel.group_elems;
  for (std::int64_t first_key = 0; first_key < num_keys; first_key += kernel.group_elems) {
    const std::int64_t step = first_key / kernel.group_elems;
    std::uint8_t* to = destination + step * stride_bytes;
    std::memcpy(to, block.value_steps + step * block.value_stride_bytes,
                static_cast<std::size_t>(stride_bytes));
    for (int part = 0; part < kernel.group_elems; ++part) {
      const std::int64_t key = first_key + part;
      if (key < num_keys && is_live[key] != 0) continue;
      for (std::int64_t column = 0; column < head_dim_v; ++column) {
        std::memset(to + column * kernel.group_bytes + part * elem_bytes, 0,
                    static_cast<std::size_t>(elem_bytes));
      }
    }
  }
  KvBlock result = block;
  result.value_steps = destination;
  result.value_stride_bytes = stride_bytes;
  return result;
}

}  // namespace heed::cpu
