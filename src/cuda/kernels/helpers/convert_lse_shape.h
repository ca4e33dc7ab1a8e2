// Arguments and launch shape of the kernel that converts lse, for host and device.
#ifndef HEED_CUDA_KERNELS_HELPERS_CONVERT_LSE_SHAPE_H_
#define HEED_CUDA_KERNELS_HELPERS_CONVERT_LSE_SHAPE_H_

#include "cuda/kernels/common/args.h"

namespace heed::cuda {

inline constexpr int kConvertLseRows = 256;  // threads of a CTA, one row each

struct ConvertLseArgs {
  RowsArg half;  // fp16 [batch, row, head]
  LseArg wide;   // fp32
  i64 batch;
  i64 num_heads;
  i64 num_rows;
};

HEED_DEVICE i64 ConvertLseCtasPerHead(i64 num_rows) {
  return device::CeilDiv<i64>(num_rows, kConvertLseRows);
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_HELPERS_CONVERT_LSE_SHAPE_H_
