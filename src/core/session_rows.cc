#include "core/session_rows.h"

#include <algorithm>
#include <cstring>

#include "device/float16.h"

namespace heed::core {
namespace {

template <class From, class To>
void ConvertEach(const std::uint8_t* source, std::int64_t num_elems, std::uint8_t* target,
                 To (*convert)(From)) {
  const auto* in = reinterpret_cast<const From*>(source);
  auto* out = reinterpret_cast<To*>(target);
  for (std::int64_t d = 0; d < num_elems; ++d) out[d] = convert(in[d]);
}

void ConvertRow(const std::uint8_t* source, DType from, DType to, std::int64_t num_elems,
                std::uint8_t* target) {
  if (from == to) {
    std::memcpy(target, source, static_cast<std::size_t>(num_elems) * DTypeBytes(from));
    return;
  }
  // One of the two is fp32: the caller's rows are fp32 or as in the session.
  using Bits = device::u16;
  if (to == DType::kF16) {
    ConvertEach<float, Bits>(source, num_elems, target,
                             [](float value) { return device::Fp32ToFp16(value); });
  } else if (to == DType::kBF16) {
    ConvertEach<float, Bits>(source, num_elems, target,
                             [](float value) { return device::Fp32ToBf16(value); });
  } else if (from == DType::kF16) {
    ConvertEach<Bits, float>(source, num_elems, target,
                             [](Bits bits) { return device::Fp16ToFp32(bits); });
  } else {
    ConvertEach<Bits, float>(source, num_elems, target,
                             [](Bits bits) { return device::Bf16ToFp32(bits); });
  }
}

// Calls visit(row of the tensor, index of the row in compact order) for every row.
template <class Visit>
void ForEachRow(const TensorInfo& tensor, Visit&& visit) {
  const auto elem_bytes = static_cast<std::int64_t>(DTypeBytes(tensor.dtype));
  auto* data = static_cast<std::uint8_t*>(tensor.data);
  std::int64_t index = 0;
  for (std::int64_t b = 0; b < tensor.shape[0]; ++b) {
    for (std::int64_t token = 0; token < tensor.shape[1]; ++token) {
      for (std::int64_t head = 0; head < tensor.shape[2]; ++head) {
        const std::int64_t at_elems = b * tensor.stride_elems[0] + token * tensor.stride_elems[1] +
                                      head * tensor.stride_elems[2];
        visit(data + at_elems * elem_bytes, index++);
      }
    }
  }
}

}  // namespace

void PackRows(const TensorInfo& source, DType dtype, void* compact) {
  const std::int64_t row_elems = source.shape[3];
  const std::int64_t row_bytes = row_elems * static_cast<std::int64_t>(DTypeBytes(dtype));
  auto* out = static_cast<std::uint8_t*>(compact);
  ForEachRow(source, [&](const std::uint8_t* row, std::int64_t index) {
    ConvertRow(row, source.dtype, dtype, row_elems, out + index * row_bytes);
  });
}

void UnpackRows(const void* compact, DType dtype, const TensorInfo& target) {
  const std::int64_t row_elems = target.shape[3];
  const std::int64_t row_bytes = row_elems * static_cast<std::int64_t>(DTypeBytes(dtype));
  const auto* in = static_cast<const std::uint8_t*>(compact);
  ForEachRow(target, [&](std::uint8_t* row, std::int64_t index) {
    ConvertRow(in + index * row_bytes, dtype, target.dtype, row_elems, row);
  });
}

void PackStep(const SessionStep& step, void* block) {
  auto* base = static_cast<std::uint8_t*>(block);
  for (const SessionStep::Rows& rows : step.rows) {
    if (!IsHostDevice(rows.source->device)) continue;
    PackRows(*rows.source, step.dtype, base + rows.at_bytes);
  }
  for (const SessionStep::Lengths& lengths : step.lengths) {
    auto* entries = reinterpret_cast<std::int32_t*>(base + lengths.at_bytes);
    std::fill(entries, entries + step.num_sequences, lengths.num_tokens);
  }
}

}  // namespace heed::core
