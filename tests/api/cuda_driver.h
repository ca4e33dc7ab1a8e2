// Whether this machine has a CUDA driver, asked of the loader and not of the library under test.
#ifndef HEED_TESTS_API_CUDA_DRIVER_H_
#define HEED_TESTS_API_CUDA_DRIVER_H_

#include <dlfcn.h>

namespace heed::test {

// Without one every CUDA call must be refused with the remedy; with one, what happens depends on
// the machine, and tests/gpu tests it.
inline bool HasCudaDriver() {
  static const bool has_driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr;
  return has_driver;
}

inline constexpr char kCudaRemedy[] = "install an NVIDIA driver";

}  // namespace heed::test

#endif  // HEED_TESTS_API_CUDA_DRIVER_H_
