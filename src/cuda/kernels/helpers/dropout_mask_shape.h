// Launch shape of the dropout-mask kernel, for host and device.
#ifndef HEED_CUDA_KERNELS_HELPERS_DROPOUT_MASK_SHAPE_H_
#define HEED_CUDA_KERNELS_HELPERS_DROPOUT_MASK_SHAPE_H_

#include "device/prelude.h"

namespace heed::cuda {

inline constexpr int kDropoutMaskKeys = 128;  // threads of a CTA, one key each

HEED_DEVICE device::i64 DropoutMaskCtasPerRow(device::i64 kv_len) {
  return device::CeilDiv<device::i64>(kv_len, kDropoutMaskKeys);
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_HELPERS_DROPOUT_MASK_SHAPE_H_
