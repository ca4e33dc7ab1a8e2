// Descriptions of tensors for the copy engine (TMA) of compute capability 9.0 and newer.
#ifndef HEED_CUDA_TENSOR_MAP_H_
#define HEED_CUDA_TENSOR_MAP_H_

#include "cuda/context.h"
#include "cuda/kernels/sm90/args.h"

namespace heed::cuda {

// Axes of a q-, k-, v- or o-like operand as the map shall see them.
struct TensorExtents {
  std::int64_t batch = 1;
  std::int64_t rows = 1;
  std::int64_t heads = 1;
  std::int64_t columns = 1;
  int box_columns = 64;
};

// Whether the copy engine can address the view of 8- or 16-bit elements: aligned to 16 bytes,
// strides of axes longer than 1 positive multiples of 16 bytes below 2^40, axes shorter than 2^31.
bool CanMapTensor(const core::RowsView& view, const TensorExtents& extents);

// Boxes of box_rows rows and extents.box_columns columns of one head, swizzled over a row of the
// box where it has 128 (see tile/wgmma.cuh) or 64 bytes. first_row of the view is row 0 of the map.
// CanMapTensor holds and no axis is empty.
core::Status MakeTensorMap(const Driver& driver, const core::RowsView& view,
                           const TensorExtents& extents, std::int64_t first_row, int box_rows,
                           TensorMap* map);

}  // namespace heed::cuda

#endif  // HEED_CUDA_TENSOR_MAP_H_
