#include <cstdlib>
#include <limits>

#include "core/os/os.h"

namespace heed::core::os {

void* AllocateAligned(std::size_t size_bytes) {
  constexpr std::size_t kAlignmentBytes = 64;
  if (size_bytes > std::numeric_limits<std::size_t>::max() - kAlignmentBytes) return nullptr;
  // aligned_alloc wants a multiple of the alignment.
  const std::size_t blocks = size_bytes / kAlignmentBytes + 1;
  return std::aligned_alloc(kAlignmentBytes, blocks * kAlignmentBytes);
}

void FreeAligned(void* block) { std::free(block); }

}  // namespace heed::core::os
