#include "core/build/kv_format.h"

#include <cinttypes>

#include "core/build/views.h"
#include "device/kv_quant.h"
#include "device/prelude.h"

namespace heed::core {
namespace {

Status CheckPayloadDType(const TensorInfo& payload, heed_kv_format_t format) {
  switch (format) {
    case HEED_KV_INT8:
      return RequireDType(payload, {DType::kU8, DType::kI8});
    case HEED_KV_FP8_E4M3:
      return RequireDType(payload, {DType::kU8, DType::kF8E4M3});
    default:
      return RequireDType(payload, {DType::kU8});
  }
}

}  // namespace

std::int64_t KvPayloadElems(heed_kv_format_t format, std::int64_t head_dim) {
  constexpr std::int64_t kBlockElems = device::kBlockElems;
  switch (format) {
    case HEED_KV_INT4:
      return device::CeilDiv<std::int64_t>(head_dim, 2);
    case HEED_KV_Q8_0:
      return device::CeilDiv(head_dim, kBlockElems) * device::kQ8Bytes;
    case HEED_KV_Q4_0:
      return device::CeilDiv(head_dim, kBlockElems) * device::kQ4Bytes;
    default:
      return head_dim;
  }
}

bool HasInlineScales(heed_kv_format_t format) {
  return format == HEED_KV_Q8_0 || format == HEED_KV_Q4_0;
}

Status CheckKvPayload(const TensorInfo& payload, heed_kv_format_t format, heed_kv_layout_t layout,
                      std::int64_t head_dim) {
  HEED_RETURN_IF_ERROR(CheckPayloadDType(payload, format));
  std::int64_t wanted_elems = KvPayloadElems(format, head_dim);
  if (layout == HEED_KV_LAYOUT_INTERLEAVED) {
    if (format != HEED_KV_INT8) {
      return InvalidArgument(
          Format("%s: the interleaved layout is for HEED_KV_INT8 only", payload.name));
    }
    if (payload.shape[1] % kInterleavedSlots != 0) {
      return InvalidArgument(payload.AxisText(1) + Format(": must be a multiple of %" PRId64
                                                          " in the interleaved layout",
                                                          kInterleavedSlots));
    }
    wanted_elems = device::CeilDiv(head_dim, kInterleavedBytes) * kInterleavedBytes;
  }
  if (payload.shape[3] != wanted_elems) {
    return InvalidArgument(payload.AxisText(3) + Format(": must be %" PRId64
                                                        " for a head dim of %" PRId64
                                                        " in this format",
                                                        wanted_elems, head_dim));
  }
  return RequireContiguousRows(payload);
}

Status CheckKvScales(const TensorInfo& scales, const TensorInfo& payload, std::int64_t head_dim) {
  HEED_RETURN_IF_ERROR(RequireDType(scales, {DType::kF32}));
  for (const int axis : {0, 1, 2}) {
    HEED_RETURN_IF_ERROR(RequireSameAxis(scales, axis, payload, axis));
  }
  const std::int64_t groups = scales.shape[3];
  if (groups >= 1 && head_dim % groups == 0) return {};
  return InvalidArgument(scales.AxisText(3) +
                         Format(": must divide the head dim, %" PRId64, head_dim));
}

KvCacheView MakeKvCacheView(const TensorInfo& rows, heed_kv_format_t format,
                            heed_kv_layout_t layout, std::int64_t head_dim) {
  KvCacheView view;
  view.rows = RowsViewOf(rows);
  view.format = format;
  view.layout = format == HEED_KV_PLAIN ? HEED_KV_LAYOUT_ROWS : layout;
  view.head_dim = head_dim;
  view.payload_elems = rows.shape[3];
  return view;
}

void SetKvScales(const TensorInfo& scales, KvCacheView* view) {
  view->scales = RowsViewOf(scales);
  view->num_groups = scales.shape[3];
  view->scale_group_stride_elems = scales.stride_elems[3];
}

}  // namespace heed::core
