// Keys and values in a kernel's own format, packed once for all tiles of a KV head by all workers,
// for kernels that read nothing in place. Otherwise every range of tiles packs for itself, block by
// block (kv_block.h).
#ifndef HEED_CPU_KV_HEADS_H_
#define HEED_CPU_KV_HEADS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "cpu/kv_block.h"

namespace heed::cpu {

// Sizes of what is packed; total_bytes = 0: nothing is.
struct KvHeadsLayout {
  std::int64_t blocks_per_head = 0;
  std::int64_t num_heads = 0;  // of keys, in all sequences
  std::size_t block_key_bytes = 0, block_bytes = 0;
  std::size_t total_bytes = 0;
};
KvHeadsLayout MakeKvHeadsLayout(const core::ForwardProblem& problem, const ForwardKernel& kernel,
                                const ScratchLayout& scratch);

class KvHeads {
 public:
  // memory: layout.total_bytes, aligned to 64 bytes.
  KvHeads(const core::ForwardProblem& problem, const ForwardKernel& kernel,
          const ScratchLayout& scratch, const KvHeadsLayout& layout, void* memory);

  // Packs what no other worker has taken. Every worker calls it before it reads a block.
  void PackShare();
  // Keys of one block, not empty, that some row sees; waits for the worker that packs them.
  KvBlock Block(const HeadSequence& head, device::KeyRange keys);

 private:
  std::int64_t IndexOf(const HeadSequence& head, std::int64_t key) const;
  void Pack(std::int64_t index);

  const core::ForwardProblem& problem_;
  const ForwardKernel& kernel_;
  const ScratchLayout& scratch_;
  const KvHeadsLayout layout_;
  std::uint8_t* const memory_;
  std::atomic<std::int64_t> next_{0};
  std::vector<std::int32_t> is_packed_;  // [blocks of all heads], 0 or 1
};

}  // namespace heed::cpu

#endif  // HEED_CPU_KV_HEADS_H_
