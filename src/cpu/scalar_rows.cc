#include "cpu/scalar_rows.h"

#include <algorithm>
#include <cstring>

#include "device/float16.h"

namespace heed::cpu {
namespace {

constexpr std::int64_t kSums = 8;
constexpr std::int64_t kChunkElems = 64;  // a multiple of kSums

ElementRun Part(const ElementRun& run, std::int64_t begin) {
  return {run.data, run.dtype, run.first_elem + begin,
          std::min(kChunkElems, run.num_elems - begin)};
}

}  // namespace

void LoadElements(const ElementRun& from, float* to) {
  if (from.dtype == core::DType::kF32) {
    std::copy_n(static_cast<const float*>(from.data) + from.first_elem, from.num_elems, to);
    return;
  }
  const auto* bits = static_cast<const std::uint16_t*>(from.data) + from.first_elem;
  if (from.dtype == core::DType::kF16) {
    std::transform(bits, bits + from.num_elems, to, device::Fp16ToFp32);
  } else {
    std::transform(bits, bits + from.num_elems, to, device::Bf16ToFp32);
  }
}

void StoreElements(const float* from, const ElementRun& to) {
  if (to.dtype == core::DType::kF32) {
    std::copy_n(from, to.num_elems, static_cast<float*>(to.data) + to.first_elem);
    return;
  }
  auto* bits = static_cast<std::uint16_t*>(to.data) + to.first_elem;
  if (to.dtype == core::DType::kF16) {
    std::transform(from, from + to.num_elems, bits, device::Fp32ToFp16);
  } else {
    std::transform(from, from + to.num_elems, bits, device::Fp32ToBf16);
  }
}

float DotElements(const ElementRun& a, const ElementRun& b) {
  float sums[kSums] = {};
  for (std::int64_t begin = 0; begin < a.num_elems; begin += kChunkElems) {
    float of_a[kChunkElems] = {}, of_b[kChunkElems] = {};
    LoadElements(Part(a, begin), of_a);
    LoadElements(Part(b, begin), of_b);
    const std::int64_t used = Part(a, begin).num_elems;
    for (std::int64_t first = 0; first < used; first += kSums) {
      for (std::int64_t n = 0; n < kSums; ++n) sums[n] += of_a[first + n] * of_b[first + n];
    }
  }
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  return total;
}

}  // namespace heed::cpu
