#include "core/overlap.h"

#include <cstdint>
#include <optional>

namespace heed::core {
namespace {

std::int64_t StrideBytes(const TensorInfo& info, int axis) {
  return info.stride_elems[static_cast<std::size_t>(axis)] *
         static_cast<std::int64_t>(DTypeBytes(info.dtype));
}

bool IsMoving(const TensorInfo& info, int axis) {
  return info.shape[static_cast<std::size_t>(axis)] > 1 &&
         info.stride_elems[static_cast<std::size_t>(axis)] > 0;
}

// Bytes that the axes with strides below `modulus_bytes` reach; nothing when a larger stride is not
// a multiple of it or the reach is longer than the modulus.
std::optional<std::int64_t> ReachBelow(const TensorInfo& info, std::int64_t modulus_bytes) {
  std::int64_t reach_bytes = static_cast<std::int64_t>(DTypeBytes(info.dtype));
  for (int axis = 0; axis < info.rank; ++axis) {
    if (!IsMoving(info, axis)) continue;
    const std::int64_t stride_bytes = StrideBytes(info, axis);
    if (stride_bytes < modulus_bytes) {
      reach_bytes += (info.shape[static_cast<std::size_t>(axis)] - 1) * stride_bytes;
    } else if (stride_bytes % modulus_bytes != 0) {
      return std::nullopt;
    }
  }
  if (reach_bytes > modulus_bytes) return std::nullopt;
  return reach_bytes;
}

bool IsDisjointModulo(const TensorInfo& a, const TensorInfo& b, std::int64_t modulus_bytes) {
  const std::optional<std::int64_t> a_reach_bytes = ReachBelow(a, modulus_bytes);
  const std::optional<std::int64_t> b_reach_bytes = ReachBelow(b, modulus_bytes);
  if (!a_reach_bytes || !b_reach_bytes) return false;
  const auto modulus = static_cast<std::uintptr_t>(modulus_bytes);
  const std::uintptr_t a_phase = reinterpret_cast<std::uintptr_t>(a.data) % modulus;
  const std::uintptr_t b_phase = reinterpret_cast<std::uintptr_t>(b.data) % modulus;
  // Distance from a to the next b around the circle, and from there back to a.
  const auto a_to_b = static_cast<std::int64_t>((b_phase + modulus - a_phase) % modulus);
  return *a_reach_bytes <= a_to_b && *b_reach_bytes <= modulus_bytes - a_to_b;
}

}  // namespace

bool MayOverlap(const TensorInfo& a, const TensorInfo& b) {
  if (a.data == nullptr || b.data == nullptr || a.empty() || b.empty()) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data);
  if (a_begin + static_cast<std::uintptr_t>(a.span_bytes) <= b_begin) return false;
  if (b_begin + static_cast<std::uintptr_t>(b.span_bytes) <= a_begin) return false;
  for (const TensorInfo* info : {&a, &b}) {
    for (int axis = 0; axis < info->rank; ++axis) {
      if (IsMoving(*info, axis) && IsDisjointModulo(a, b, StrideBytes(*info, axis))) return false;
    }
  }
  return true;
}

}  // namespace heed::core
