// How the work of a decode call is dealt out. A task is (KV head, tile of query rows, sequence), in
// this order; its keys are cut into blocks, counted from key 0. All blocks of all tasks form one
// line, of which every CTA takes an equal contiguous run: at most the end of one task, whole tasks,
// and the beginning of another. What a CTA does of one task is a piece. Nothing on the host depends
// on the lengths, so that one captured graph serves growing sequences. Heads come first so that as
// many CTAs as there are heads are at the same keys at a time: rows of neighbouring heads are
// neighbours in memory, which likes to be asked for them together.
//
// With max_parts > 0 pieces are parts of a task instead, cut by its own number of blocks alone; the
// CTA on whose run a part begins takes it. Results then do not depend on the batch or the GPU.
#ifndef HEED_CUDA_KERNELS_DECODE_WORK_CUH_
#define HEED_CUDA_KERNELS_DECODE_WORK_CUH_

#include "cuda/kernels/decode/keys.cuh"

namespace heed::cuda {

// One piece, and how the partial results of its task are found.
struct Piece {
  bool is_valid = false;
  i32 batch = 0;
  i32 head_tile = 0;  // kv head (or group of kHeads) * row tiles + row tile
  SequenceKeys keys;
  i32 first_block = 0;  // counted from key 0
  i32 num_blocks = 0;
  i32 index = 0;  // among num_pieces
  i32 num_pieces = 1;
  i64 arrival = 0;  // of the task, in DecodePartialsArg::arrivals
  i64 base_slot = 0;
  bool is_run = false;  // slots of CTAs, two each, rather than of parts

  // Slot of piece `at` of this task. The first piece of a task is the last of its CTA.
  __device__ __forceinline__ i64 Slot(i32 at) const {
    return is_run ? base_slot + 2 * at + (at == 0 ? 1 : 0) : base_slot + at;
  }
};

// a / b for a >= 0 and b > 0, in 32 bits where that holds both.
__device__ __forceinline__ i64 Quotient(i64 a, i64 b) {
  if ((a | b) >> 32 == 0) return static_cast<u32>(a) / static_cast<u32>(b);
  return a / b;
}

template <int kBlockKeys, int kHeads = 1>
class Work {
 public:
  __device__ __forceinline__ explicit Work(const DecodeArgs& args)
      : args_(args),
        tasks_per_sequence_(args.problem.num_kv_heads / kHeads * args.schedule.num_row_tiles) {}

  // False: nothing is left for this CTA. Every warp computes the same.
  __device__ __forceinline__ bool Start() {
    const DecodeScheduleArg& schedule = args_.schedule;
    i64 wanted = -1;
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
      const i64 of_head = ScanBatch(wanted);
      if (pass == 1) break;
      const i64 total = of_head * tasks_per_sequence_;
      share_ = device::Max<i64>(schedule.min_blocks,
                                Quotient(total + schedule.num_ctas - 1, schedule.num_ctas));
      position_ = blockIdx.x * share_;
      end_ = device::Min<i64>(position_ + share_, total);
      if (position_ >= end_) return false;
      head_tile_ = static_cast<i32>(Quotient(position_, of_head));
      wanted = position_ - head_tile_ * of_head;
      block_ = static_cast<i32>(wanted);  // of the one sequence
      if (args_.problem.batch == 1) break;
    }
    next_length_ = EntryAt(args_.lengths.cache_lengths, batch_);
    OpenSequence();
    if (schedule.max_parts > 0) {
      const i32 skipped = (part_blocks_ - block_ % part_blocks_) % part_blocks_;
      taken_blocks_ = device::Min(skipped, num_blocks_ - block_);
    }
    return true;
  }

  // The next piece; invalid after the last.
  __device__ __forceinline__ Piece Take() {
    Advance(taken_blocks_);
    const Piece piece = Make();
    taken_blocks_ = piece.num_blocks;
    return piece;
  }

 private:
  // Sums blocks of one task over the batch. With wanted >= 0: sets batch_ to the sequence on whose
  // blocks `wanted` falls, and block_ to its own block there.
  __device__ __forceinline__ i64 ScanBatch(i64 wanted) {
    const int lane = threadIdx.x % 32;
    const CacheLengthsArg& lengths = args_.lengths;
    const i64 batch = args_.problem.batch;
    i64 sum = 0;
    // Lengths are on their way while those before are looked at.
    i64 length = lane < batch ? EntryAt(lengths.cache_lengths, lane) : 0;
#pragma unroll 1
    for (i64 chunk = 0; chunk < batch; chunk += 32) {
      const i64 sequence = chunk + lane;
      const i64 following = sequence + 32;
      const i64 next_length = following < batch ? EntryAt(lengths.cache_lengths, following) : 0;
      i32 blocks = 0;
      if (sequence < batch) {
        const SequenceKeys keys = KeysOfLength(lengths, sequence, length);
        if (wanted < 0 && blockIdx.x == 0 && threadIdx.x < 32 && keys.is_clamped) {
          atomicAdd(&args_.problem.errors->num_bad_lengths, 1u);
        }
        blocks = BlocksOf(keys).count;
      }
      length = next_length;
      if (batch == 1) return __shfl_sync(0xFFFFFFFFu, blocks, 0);
      i64 inclusive = blocks;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const i64 other = __shfl_up_sync(0xFFFFFFFFu, inclusive, step);
        if (lane >= step) inclusive += other;
      }
      const i64 end = sum + __shfl_sync(0xFFFFFFFFu, inclusive, 31);
      if (wanted >= 0 && wanted < end) {
        const u32 ballot = __ballot_sync(0xFFFFFFFFu, wanted < sum + inclusive);
        const int owner = __ffs(ballot) - 1;
        block_ =
            static_cast<i32>(wanted - __shfl_sync(0xFFFFFFFFu, sum + inclusive - blocks, owner));
        batch_ = static_cast<i32>(chunk) + owner;
        return end;
      }
      sum = end;
    }
    return sum;
  }

  struct Blocks {
    i32 first;
    i32 count;
  };

  // Blocks of every task of a sequence; at least one, so that each writes its rows.
  __device__ __forceinline__ Blocks BlocksOf(const SequenceKeys& keys) const {
    const device::KeyRange range =
        KeysOfTokens(args_, keys, 0, args_.problem.lengths.max_q_len - 1);
    const i32 first = static_cast<i32>(range.begin) / kBlockKeys;
    const i32 end = (static_cast<i32>(range.end) + kBlockKeys - 1) / kBlockKeys;
    return Blocks{first, device::Max(1, end - first)};
  }

  // The next length is on its way from here on.
  __device__ __forceinline__ void OpenSequence() {
    keys_ = KeysOfLength(args_.lengths, batch_, next_length_);
    const i64 next = batch_ + 1 < args_.problem.batch ? batch_ + 1 : 0;
    next_length_ = EntryAt(args_.lengths.cache_lengths, next);
    const Blocks blocks = BlocksOf(keys_);
    first_block_ = blocks.first;
    num_blocks_ = blocks.count;
    if (args_.schedule.max_parts > 0) {
      part_blocks_ = device::Max(args_.schedule.min_part_blocks,
                                 device::CeilDiv(num_blocks_, args_.schedule.max_parts));
    }
  }

  __device__ __forceinline__ void Advance(i32 num_blocks) {
    position_ += num_blocks;
    block_ += num_blocks;
    if (block_ < num_blocks_) return;
    block_ = 0;
    if (++batch_ == args_.problem.batch) {
      batch_ = 0;
      ++head_tile_;
    }
    if (position_ < end_) OpenSequence();
  }

  __device__ __forceinline__ Piece Make() const {
    Piece piece;
    if (position_ >= end_) return piece;
    piece.is_valid = true;
    piece.batch = batch_;
    piece.head_tile = head_tile_;
    piece.keys = keys_;
    piece.first_block = first_block_ + block_;
    const i64 task = i64{batch_} * tasks_per_sequence_ + head_tile_;
    if (args_.schedule.max_parts > 0) {
      piece.num_blocks = device::Min(part_blocks_, num_blocks_ - block_);
      piece.index = block_ / part_blocks_;
      piece.num_pieces = device::CeilDiv(num_blocks_, part_blocks_);
      piece.arrival = task;
      piece.base_slot = task * args_.schedule.max_parts;
      return piece;
    }
    piece.num_blocks = static_cast<i32>(device::Min<i64>(end_ - position_, num_blocks_ - block_));
    piece.is_run = true;
    if (piece.num_blocks == num_blocks_) return piece;
    const i64 task_begin = position_ - block_;
    const i64 first_cta = Quotient(task_begin, share_);
    const i64 last_cta = Quotient(task_begin + num_blocks_ - 1, share_);
    piece.index = static_cast<i32>(blockIdx.x - first_cta);
    piece.num_pieces = static_cast<i32>(last_cta - first_cta + 1);
    piece.arrival = first_cta;  // no other task that is cut begins on its run
    piece.base_slot = 2 * first_cta;
    return piece;
  }

  const DecodeArgs& args_;
  const i32 tasks_per_sequence_;
  i64 share_ = 0;
  i64 position_ = 0, end_ = 0;  // on the line
  i64 next_length_ = 0;         // of the cache of the sequence that OpenSequence opens
  i32 batch_ = 0;
  i32 head_tile_ = 0;
  i32 block_ = 0;         // within the task
  i32 taken_blocks_ = 0;  // of the last piece, or before the first
  i32 first_block_ = 0, num_blocks_ = 1, part_blocks_ = 1;
  SequenceKeys keys_;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_WORK_CUH_
