// Launch shape of the combine kernel, for host and device.
#ifndef HEED_CUDA_KERNELS_HELPERS_COMBINE_SHAPE_H_
#define HEED_CUDA_KERNELS_HELPERS_COMBINE_SHAPE_H_

#include "device/prelude.h"

namespace heed::cuda {

inline constexpr int kCombineRowsPerCta = 4;  // one warp each
inline constexpr int kCombineThreads = 32 * kCombineRowsPerCta;

HEED_DEVICE device::i64 CombineCtasPerHead(device::i64 num_rows) {
  return device::CeilDiv<device::i64>(num_rows, kCombineRowsPerCta);
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_HELPERS_COMBINE_SHAPE_H_
