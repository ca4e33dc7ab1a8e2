// What an architecture offers to one thread block (CUDA programming guide, "technical
// specifications per compute capability").
#ifndef HEED_CUDA_ARCH_LIMITS_H_
#define HEED_CUDA_ARCH_LIMITS_H_

namespace heed::cuda {

// Shared memory that a kernel may ask for, static and dynamic together. arch: 80 for sm_80. Of
// architectures that are not known, what all since sm_80 have.
constexpr int MaxSharedBytes(int arch) {
  constexpr int kKibibyte = 1024;
  switch (arch) {
    case 75:
      return 64 * kKibibyte;
    case 80:
    case 87:
      return 163 * kKibibyte;
    case 90:
    case 100:
    case 103:
    case 110:
      return 227 * kKibibyte;
    default:
      return 99 * kKibibyte;  // 86, 88, 89, 120, 121
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_ARCH_LIMITS_H_
