#include "cpu/kv_heads.h"

#include <algorithm>

#include "core/os/thread_pool.h"
#include "device/prelude.h"

namespace heed::cpu {
namespace {

// Fewer tiles of a head may as well pack for themselves.
constexpr std::int64_t kLeastTiles = 4;
// Beyond, sequences are long enough for ranges of many tiles, which hide what they pack.
constexpr std::size_t kMostBytes = std::size_t{48} << 20;

// Keys that some row of the sequence sees.
device::KeyRange SeenKeys(const core::ForwardProblem& problem, const core::Sequence& sequence) {
  if (sequence.q_len == 0) return {0, 0};
  const auto visible = [&](std::int64_t token) {
    return device::VisibleKeys(problem.score.window, token, sequence.q_len, sequence.kv_len);
  };
  return {std::max<std::int64_t>(visible(0).begin, 0),
          std::min<std::int64_t>(visible(sequence.q_len - 1).end, sequence.kv_len)};
}

}  // namespace

KvHeadsLayout MakeKvHeadsLayout(const core::ForwardProblem& problem, const ForwardKernel& kernel,
                                const ScratchLayout& scratch) {
  const core::Shape& shape = problem.shape;
  const std::int64_t num_tiles =
      device::CeilDiv<std::int64_t>(shape.max_q_len * shape.group, kernel.tile_rows);
  // Sequences that lie one after the other may differ much in length.
  if (!kernel.packs_heads || num_tiles < kLeastTiles ||
      problem.kv_packing != core::Packing::kDense || problem.block_table.present()) {
    return {};
  }
  KvHeadsLayout layout;
  layout.blocks_per_head = device::CeilDiv<std::int64_t>(shape.max_kv_len, kBlockKeys);
  layout.num_heads = shape.batch * shape.num_kv_heads;
  layout.block_key_bytes = static_cast<std::size_t>(kBlockKeys * scratch.packed_key_stride_bytes);
  layout.block_bytes =
      layout.block_key_bytes +
      static_cast<std::size_t>(kBlockKeys / kernel.group_elems * scratch.packed_value_stride_bytes);
  const auto num_blocks = static_cast<std::size_t>(layout.blocks_per_head * layout.num_heads);
  if (num_blocks > kMostBytes / layout.block_bytes) return {};
  layout.total_bytes = num_blocks * layout.block_bytes;
  return layout;
}

KvHeads::KvHeads(const core::ForwardProblem& problem, const ForwardKernel& kernel,
                 const ScratchLayout& scratch, const KvHeadsLayout& layout, void* memory)
    : problem_(problem),
      kernel_(kernel),
      scratch_(scratch),
      layout_(layout),
      memory_(static_cast<std::uint8_t*>(memory)),
      is_packed_(static_cast<std::size_t>(layout.num_heads * layout.blocks_per_head), 0) {}

std::int64_t KvHeads::IndexOf(const HeadSequence& head, std::int64_t key) const {
  return (head.batch * problem_.shape.num_kv_heads + head.kv_head) * layout_.blocks_per_head +
         key / kBlockKeys;
}

void KvHeads::Pack(std::int64_t index) {
  const std::int64_t head_index = index / layout_.blocks_per_head;
  const std::int64_t batch = head_index / problem_.shape.num_kv_heads;
  const HeadSequence head{problem_.SequenceAt(batch), batch,
                          head_index % problem_.shape.num_kv_heads};
  const device::KeyRange seen = SeenKeys(problem_, head.sequence);
  const std::int64_t first = index % layout_.blocks_per_head * kBlockKeys;
  const device::KeyRange keys{first, std::min<std::int64_t>(first + kBlockKeys, seen.end)};
  if (keys.end > std::max<std::int64_t>(keys.begin, seen.begin)) {
    std::uint8_t* block = memory_ + static_cast<std::size_t>(index) * layout_.block_bytes;
    PackKvBlock(problem_, kernel_, head, scratch_, {keys, block, block + layout_.block_key_bytes});
  }
  std::atomic_ref(is_packed_[static_cast<std::size_t>(index)]).store(1, std::memory_order_release);
}

void KvHeads::PackShare() {
  const std::int64_t num_blocks = layout_.num_heads * layout_.blocks_per_head;
  for (std::int64_t index = next_++; index < num_blocks; index = next_++) Pack(index);
}

KvBlock KvHeads::Block(const HeadSequence& head, device::KeyRange keys) {
  const std::int64_t index = IndexOf(head, keys.begin);
  // A block that is not there yet is being packed by a worker that runs.
  core::os::AwaitTurn(std::atomic_ref(is_packed_[static_cast<std::size_t>(index)]), 1);
  const std::uint8_t* block = memory_ + static_cast<std::size_t>(index) * layout_.block_bytes;
  const KvBlock whole{.keys = {keys.begin / kBlockKeys * kBlockKeys, keys.end},
                      .key_rows = block,
                      .key_stride_bytes = scratch_.packed_key_stride_bytes,
                      .value_steps = block + layout_.block_key_bytes,
                      .value_stride_bytes = scratch_.packed_value_stride_bytes};
  return SubBlock(whole, keys, kernel_.group_elems);
}

}  // namespace heed::cpu
