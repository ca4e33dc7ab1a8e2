// gpu_* tests: need a CUDA device; without one they skip as a whole, with the reason.
// Environment: HEED_GPU_CASES, HEED_GPU_SEED, HEED_GPU_KERNEL (part of a row id), HEED_GPU_CASE.
#include <gtest/gtest.h>

#include <cstdio>

#include "gpu/cuda.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string why = heed::test::Cuda::WhyUnavailable();
  if (!why.empty()) {
    constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of the CTest entry
    std::printf("SKIPPED: no CUDA device: %s\n", why.c_str());
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
