// The bf16 kernel of a matrix unit: its packing, and its table.
#ifndef HEED_CPU_KERNEL_MATRIX_KERNEL_INL_H_
#define HEED_CPU_KERNEL_MATRIX_KERNEL_INL_H_

#include "cpu/kernel/matrix_block-inl.h"
#include "cpu/kernel/matrix_scores-inl.h"
#include "cpu/kernel/matrix_values-inl.h"
#include "cpu/kernel/pack-inl.h"

namespace heed::cpu {

// The pairs of Bf16PairDot, zero up to a whole group.
template <class Unit>
void PackMatrixQueries(const PackQueriesArgs& args) {
  using Isa = typename Unit::Isa;
  PackQueries<Bf16PairDot<Isa>, Bfloat>(args);
  constexpr int kPairs = kMatrixGroupElems / 2;
  const std::int64_t num_pairs = (args.head_dim + 1) / 2;
  const std::int64_t padded_pairs = (num_pairs + kPairs - 1) / kPairs * kPairs;
  auto* groups = static_cast<float*>(args.q_groups);
  for (std::int64_t lane = num_pairs * kTileLanes<Isa>; lane < padded_pairs * kTileLanes<Isa>;
       lane += Isa::kLanes) {
    Isa::Store(groups + lane, Isa::Set(0.0f));
  }
}

// 32 elements of a row, zero where there is no row or no element.
template <class Unit>
HEED_ALWAYS_INLINE inline void CopyGroup(const PackRowsArgs& args, std::int64_t row,
                                         std::int64_t first_elem, std::uint8_t* group) {
  const void* source = row < args.num_rows ? args.rows[row] : nullptr;
  if (source == nullptr) {
    Unit::CopyElements(group, 0, 0, group);
  } else {
    Unit::CopyElements(static_cast<const Bfloat*>(source) + first_elem, 0,
                       args.num_elems - first_elem, group);
  }
}

// Rows as they are, zero up to a whole group and up to a whole matrix of rows. Copied even where
// the tensor has this format: its rows lie some KiB apart, so that the 16 cache lines of a matrix
// would share one or two sets of the first-level cache, and every tile of a range reads them.
template <class Unit>
void PackMatrixKeys(const PackRowsArgs& args) {
  const std::int64_t num_rows = (args.num_rows + kMatrixRows - 1) / kMatrixRows * kMatrixRows;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    auto* group =
        static_cast<std::uint8_t*>(args.destination) + row * args.destination_stride_bytes;
    for (std::int64_t elem = 0; elem < args.num_elems; elem += kMatrixGroupElems) {
      CopyGroup<Unit>(args, row, elem, group);
      group += kMatrixRowBytes;
    }
  }
}

// Step i holds rows 32 i to 32 i + 31 transposed: 64 bytes for each column, missing rows zero, up
// to a whole matrix of columns.
template <class Unit>
void PackMatrixValues(const PackRowsArgs& args) {
  constexpr int kColumns = Unit::kTransposedColumns;
  const std::int64_t num_columns = (args.num_elems + kMatrixRows - 1) / kMatrixRows * kMatrixRows;
  alignas(64) std::uint8_t square[kMatrixGroupElems * kMatrixRowBytes];
  for (std::int64_t first_row = 0; first_row < args.num_rows; first_row += kMatrixGroupElems) {
    auto* step = static_cast<std::uint8_t*>(args.destination) +
                 first_row / kMatrixGroupElems * args.destination_stride_bytes;
    for (std::int64_t first = 0; first < num_columns; first += kMatrixGroupElems) {
      // Whole cache lines first: rows far apart may share a set of the first-level cache, which
      // cannot hold all 32 until the next columns are wanted.
      for (int i = 0; i < kMatrixGroupElems; ++i) {
        CopyGroup<Unit>(args, first_row + i, first, square + i * kMatrixRowBytes);
      }
      for (std::int64_t column = first; column < num_columns && column < first + kMatrixGroupElems;
           column += kColumns) {
        Unit::TransposeColumns(square + (column - first) * sizeof(Bfloat),
                               step + column * kMatrixRowBytes);
      }
    }
  }
}

template <class Unit>
constexpr ForwardKernel MatrixKernel() {
  using Isa = typename Unit::Isa;
  static_assert(Isa::kLanes == kMatrixRows && kTileLanes<Isa> == kMaxTileRows);
  static_assert(kBlockKeys % kMatrixGroupElems == 0);
  return {
      .tile_rows = kTileLanes<Isa>,
      .lanes = Isa::kLanes,
      .group_elems = kMatrixGroupElems,
      .group_bytes = kMatrixRowBytes,
      .column_multiple = kMatrixRows,
      .reads_keys_in_place = false,
      .reads_values_in_place = false,
      .packs_heads = true,
      .pack_queries = PackMatrixQueries<Unit>,
      .pack_keys = PackMatrixKeys<Unit>,
      .pack_values = PackMatrixValues<Unit>,
      .compute_scores = {ComputeMatrixScores<Unit, 1>, ComputeMatrixScores<Unit, 2>,
                         ComputeMatrixScores<Unit, 3>},
      .accumulate_values = {AccumulateMatrixValues<Unit, 1>, AccumulateMatrixValues<Unit, 2>,
                            AccumulateMatrixValues<Unit, 3>},
      .add_block = {AddMatrixBlock<Unit, 1>, AddMatrixBlock<Unit, 2>, AddMatrixBlock<Unit, 3>},
      .store_rows = StoreRows<Isa, Bfloat>,
      .start_thread = Unit::Start,
      .stop_thread = Unit::Stop,
  };
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_MATRIX_KERNEL_INL_H_
