#include "core/build/views.h"

namespace heed::core {

RowsView RowsViewOf(const TensorInfo& info) {
  if (!info.present()) return {};
  const bool is_packed = info.rank == 3;
  const std::size_t row_axis = is_packed ? 0 : 1;
  return {info.data, info.dtype, is_packed ? 0 : info.stride_elems[0], info.stride_elems[row_axis],
          info.stride_elems[row_axis + 1]};
}

LseView LseViewOf(const TensorInfo& info) {
  if (!info.present()) return {};
  const bool is_packed = info.rank == 2;
  const std::size_t head_axis = is_packed ? 0 : 1;
  return {info.data, info.dtype, is_packed ? 0 : info.stride_elems[0], info.stride_elems[head_axis],
          info.stride_elems[head_axis + 1]};
}

ScoreView ScoreViewOf(const TensorInfo& info) {
  if (!info.present()) return {};
  ScoreView view;
  view.data = info.data;
  view.dtype = info.dtype;
  const std::size_t leading = 4 - static_cast<std::size_t>(info.rank);
  for (std::size_t axis = leading; axis < 4; ++axis) {
    const std::size_t own_axis = axis - leading;
    view.stride_elems[axis] = info.shape[own_axis] > 1 ? info.stride_elems[own_axis] : 0;
  }
  return view;
}

HeadView HeadViewOf(const TensorInfo& info) {
  if (!info.present()) return {};
  const bool has_batch = info.rank == 2;
  return {static_cast<float*>(info.data), has_batch ? info.stride_elems[0] : 0,
          info.stride_elems[has_batch ? 1 : 0], true};
}

IndexView IndexViewOf(const TensorInfo& info) {
  if (!info.present()) return {};
  return {static_cast<const std::int32_t*>(info.data), info.stride_elems[0], true};
}

}  // namespace heed::core
