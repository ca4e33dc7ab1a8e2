#include "cpu/decode_prefetch.h"

#include <algorithm>

#include "core/kv_row.h"

namespace heed::cpu {
namespace {

constexpr std::int64_t kLineBytes = 64, kLineFloats = 16;

// What a head of the task has to prefetch of the next block: whole tokens of a part of its keys
// where the heads of a token lie side by side, else all keys of the head itself.
struct Share {
  std::int64_t first_head, num_heads;
  device::KeyRange keys;
};

Share ShareOf(const BlockKeys& block, const core::RowsView& rows) {
  const std::int64_t own_head = block.rows.task.kv_head;
  if (rows.head_stride_elems >= rows.row_stride_elems) return {own_head, 1, block.next};
  const std::int64_t count = block.next.end - block.next.begin;
  return {own_head - block.share,
          block.num_shares,
          {block.next.begin + count * block.share / block.num_shares,
           block.next.begin + count * (block.share + 1) / block.num_shares}};
}

// Lines of interleaved int8 rows.
class Lines {
 public:
  Lines(std::int64_t num_lines, const void** lines) : end_(num_lines), lines_(lines) {}

  void Add(const std::uint8_t* bytes, std::int64_t num_bytes) {
    const std::int64_t count = std::min(end_ - line_, (num_bytes + kLineBytes - 1) / kLineBytes);
    for (std::int64_t n = 0; n < count; ++n) lines_[line_ + n] = bytes + n * kLineBytes;
    line_ += count;
  }
  void Add(const BlockKeys& block, const core::KvCacheView& cache, const Share& share) {
    const std::int64_t token_bytes = share.num_heads * cache.payload_elems;
    const std::int64_t row_stride_bytes = RowStrideBytes(cache);
    const bool is_dense =
        token_bytes == row_stride_bytes &&
        (share.num_heads == 1 || cache.rows.head_stride_elems == cache.payload_elems);
    ForRuns(block, share.keys, [&](core::KvSlot at, std::int64_t run) {
      const std::uint8_t* row = cache.RowBytes(at, share.first_head);
      if (is_dense) return Add(row, run * token_bytes);
      for (std::int64_t n = 0; n < run; ++n, row += row_stride_bytes) {
        for (std::int64_t head = 0; head < share.num_heads; ++head) {
          Add(row + head * cache.rows.head_stride_elems, cache.payload_elems);
        }
      }
    });
  }
  void FillUp(const void* line) { std::fill(lines_ + line_, lines_ + end_, line); }

 private:
  std::int64_t line_ = 0, end_;
  const void** lines_;
};

}  // namespace

void LocateRowsAhead(const BlockKeys& block, const core::KvCacheView& cache, const void** rows) {
  const Share share = ShareOf(block, cache.rows);
  const std::int64_t row_stride_bytes = RowStrideBytes(cache);
  const std::int64_t head_stride_bytes = cache.rows.head_stride_elems * ElementBytes(cache);
  std::int64_t left = block.count();
  ForRuns(block, share.keys, [&](core::KvSlot at, std::int64_t run) {
    const std::uint8_t* token = cache.RowBytes(at, share.first_head);
    for (; run > 0 && left > 0; --run, token += row_stride_bytes) {
      for (std::int64_t head = 0; head < share.num_heads && left > 0; ++head, --left) {
        *rows++ = token + head * head_stride_bytes;
      }
    }
  });
}

void LocateLines(const BlockKeys& block, RowKind kind, std::int64_t num_lines, const void** lines) {
  const core::DecodeProblem& problem = block.context.problem;
  const core::KvCacheView& cache = kind == RowKind::kKeys ? problem.k : problem.v;
  Lines found(num_lines, lines);
  found.Add(block, cache, ShareOf(block, cache.rows));
  found.FillUp(cache.RowBytes(block.SlotAt(0), block.rows.task.kv_head));
}

void PrefetchScales(const BlockKeys& block, const core::KvCacheView& cache) {
  const Share share = ShareOf(block, cache.scales);
  const std::int64_t stride_floats = cache.scales.row_stride_elems;
  const std::int64_t keys_per_line =
      std::max<std::int64_t>(1, kLineFloats / std::max<std::int64_t>(1, stride_floats));
  ForRuns(block, share.keys, [&](core::KvSlot at, std::int64_t run) {
    const float* scales = cache.Scales(at, share.first_head);
    for (std::int64_t n = 0; n < run; n += keys_per_line) {
      __builtin_prefetch(scales + n * stride_floats);
    }
  });
}

}  // namespace heed::cpu
