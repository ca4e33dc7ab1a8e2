// Cutting one workspace into blocks.
#ifndef HEED_CUDA_BLOCK_LAYOUT_H_
#define HEED_CUDA_BLOCK_LAYOUT_H_

#include <cstddef>

namespace heed::cuda {

// Every block begins at a multiple of 256 bytes, as a GPU workspace does.
class BlockLayout {
 public:
  // Where the next block of size_bytes begins.
  std::size_t Take(std::size_t size_bytes) {
    constexpr std::size_t kBlockBytes = 256;
    const std::size_t begin = num_bytes_;
    num_bytes_ += (size_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    return begin;
  }
  std::size_t num_bytes() const { return num_bytes_; }

 private:
  std::size_t num_bytes_ = 0;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_BLOCK_LAYOUT_H_
