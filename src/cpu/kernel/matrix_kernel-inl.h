// The bf16 kernel of a matrix unit: its packing, and its table.
#ifndef HEED_CPU_KERNEL_MATRIX_KERNEL_INL_H_
#define HEED_CPU_KERNEL_MATRIX_KERNEL_INL_H_

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

// Rows as they are, zero up to a whole group and up to a whole matrix of rows. Copied even where
// the tensor has this format: its rows lie some KiB apart, so that the 16 cache lines of a matrix
// would share one or two sets of the first-level cache, and every tile of a range reads them.
template <class Unit>
void PackMatrixKeys(const PackRowsArgs& args) {
  const std::int64_t num_rows = (args.num_rows + kMatrixRows - 1) / kMatrixRows * kMatrixRows;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto* source = row < args.num_rows ? static_cast<const Bfloat*>(args.rows[row]) : nullptr;
    auto* group =
        static_cast<std::uint8_t*>(args.destination) + row * args.destination_stride_bytes;
    for (std::int64_t elem = 0; elem < args.num_elems; elem += kMatrixGroupElems) {
      if (source == nullptr) {
        Unit::CopyElements(group, 0, 0, group);
      } else {
        Unit::CopyElements(source + elem, 0, args.num_elems - elem, group);
      }
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
  Bfloat square[kMatrixGroupElems][kColumns];
  const Bfloat* rows[kMatrixGroupElems];
  for (std::int64_t first_row = 0; first_row < args.num_rows; first_row += kMatrixGroupElems) {
    auto* step = static_cast<std::uint8_t*>(args.destination) +
                 first_row / kMatrixGroupElems * args.destination_stride_bytes;
    for (std::int64_t column = 0; column < num_columns; column += kColumns) {
      for (int i = 0; i < kMatrixGroupElems; ++i) {
        const std::int64_t row = first_row + i;
        const auto* source =
            row < args.num_rows ? static_cast<const Bfloat*>(args.rows[row]) : nullptr;
        const std::int64_t left = source != nullptr ? args.num_elems - column : 0;
        if (left >= kColumns) {
          rows[i] = source + column;
          continue;
        }
        for (int j = 0; j < kColumns; ++j) {
          square[i][j] = j < left ? source[column + j] : Bfloat{0};
        }
        rows[i] = square[i];
      }
      Unit::TransposeColumns(rows, step + column * kMatrixRowBytes);
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
      .pack_queries = PackMatrixQueries<Unit>,
      .pack_keys = PackMatrixKeys<Unit>,
      .pack_values = PackMatrixValues<Unit>,
      .compute_scores = {ComputeMatrixScores<Unit, 1>, ComputeMatrixScores<Unit, 2>,
                         ComputeMatrixScores<Unit, 3>},
      .accumulate_values = {AccumulateMatrixValues<Unit, 1>, AccumulateMatrixValues<Unit, 2>,
                            AccumulateMatrixValues<Unit, 3>},
      .store_rows = StoreRows<Isa, Bfloat>,
      .start_thread = Unit::Start,
      .stop_thread = Unit::Stop,
  };
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_MATRIX_KERNEL_INL_H_
