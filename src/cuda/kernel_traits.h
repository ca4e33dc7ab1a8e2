// What a kernel is compiled for. The host writes these numbers into the header "heed_traits.h" that
// every kernel source includes; kernels read them as constants of heed::cuda::Traits.
#ifndef HEED_CUDA_KERNEL_TRAITS_H_
#define HEED_CUDA_KERNEL_TRAITS_H_

#include <string>

namespace heed::cuda {

enum class Element : int { kF16 = 0, kBF16 = 1, kF32 = 2 };
// How rows of q, k, v, o reach and leave the kernel.
enum class RowAccess : int {
  kVector16 = 0,  // 16-byte aligned base and strides, head dim a multiple of 16 bytes
  kElement = 1    // anything else, element by element
};
enum class WindowBounds : int { kNone = 0, kRightOnly = 1, kBoth = 2 };
enum class BiasElement : int { kNone = 0, kF32 = 1, kSameAsQ = 2 };

// One value, one constant: field some_name becomes Traits::kSomeName. Flags are 0 or 1.
struct KernelTraits {
  int element = 0;     // an Element
  int head_dim = 0;    // padded to a multiple of 16
  int head_dim_v = 0;  // likewise
  int tile_q = 0;      // rows
  int tile_kv = 0;     // rows
  int num_warps = 0;
  int kv_groups = 1;   // groups of warps that take disjoint keys of one tile and merge at the end
  int num_stages = 1;  // of K and V in shared memory
  int variant = 0;     // choices of one kernel's own, see its source
  int row_access = 0;  // a RowAccess
  int window = 0;      // a WindowBounds
  int bias = 0;        // a BiasElement
  int softcap = 0;
  int alibi = 0;
  int mask = 0;
  int sinks = 0;
  int dropout = 0;
  int varlen = 0;  // any array of lengths
  int paged = 0;
  int split = 0;  // forward writes partial results
  int deterministic = 0;
  int d_bias = 0;        // a BiasElement: of d_bias
  int exact_d_bias = 0;  // sums of d_bias that no order of additions changes
};

// Text of heed_traits.h. Equal traits give equal text.
std::string TraitsHeader(const KernelTraits& traits);

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNEL_TRAITS_H_
