#include <cstdlib>
#include <limits>

#include "core/os/os.h"

namespace heed::core::os {

void* AllocateAligned(std::size_t size_bytes) {
  constexpr std::size_t kAlignmentBytes = 64;
  // No object is larger than a pointer difference can say.
  constexpr auto kMaxBytes = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  if (size_bytes > kMaxBytes - kAlignmentBytes) return nullptr;
  // aligned_alloc wants a multiple of the alignment.
  const std::size_t blocks = size_bytes / kAlignmentBytes + 1;
  return std::aligned_alloc(kAlignmentBytes, blocks * kAlignmentBytes);
}

void FreeAligned(void* block) { std::free(block); }

}  // namespace heed::core::os
