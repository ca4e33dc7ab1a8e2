#include "cpu/decode_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/kv_row.h"
#include "cpu/decode_keys.h"
#include "cpu/decode_prefetch.h"
#include "cpu/decode_terms.h"
#include "device/kv_quant.h"

namespace heed::cpu {
namespace {

KvElement ElementOf(const core::KvCacheView& cache) {
  switch (cache.format) {
    case HEED_KV_INT8:
      return kElementI8;
    case HEED_KV_FP8_E4M3:
      return kElementF8;
    case HEED_KV_INT4:
      return kElementI4;
    case HEED_KV_Q8_0:
      return kElementQ8;
    case HEED_KV_Q4_0:
      return kElementQ4;
    default:
      return cache.rows.dtype == core::DType::kF32   ? kElementF32
             : cache.rows.dtype == core::DType::kF16 ? kElementF16
                                                     : kElementBF16;
  }
}

// One scale for a row: it multiplies a score or a weight instead of every element.
bool HasScaleOfRow(const core::KvCacheView& cache) {
  return cache.scales.present() && cache.num_groups == 1;
}

bool IsDirect(const core::KvCacheView& cache, const DecodeKernel& kernel) {
  const KvElement element = ElementOf(cache);
  const bool has_blocks = element == kElementQ8 || element == kElementQ4;
  const std::int64_t multiple =
      has_blocks ? std::int64_t{device::kBlockElems} : std::int64_t{kernel.lanes};
  return cache.layout == HEED_KV_LAYOUT_ROWS && cache.num_groups <= 1 &&
         kernel.scores[element] != nullptr && cache.head_dim % multiple == 0;
}

// Bytes of an interleaved row, gathered.
const void* GatherRow(const core::KvCacheView& cache, core::KvSlot at, std::int64_t head,
                      std::uint8_t* row) {
  const std::int64_t first_slot = at.slot / core::kInterleavedSlots * core::kInterleavedSlots;
  for (std::int64_t d = 0; d < cache.head_dim; ++d) {
    const std::int64_t byte = core::InterleavedByte(at.slot, d);
    const core::KvSlot of_byte = {at.page, first_slot + byte / cache.payload_elems};
    row[d] = cache.RowBytes(of_byte, head)[byte % cache.payload_elems];
  }
  return row;
}

// Addresses of the rows, interleaved ones apart; past the last they repeat it up to a whole vector.
void LocateRows(const BlockKeys& block, const core::KvCacheView& cache, device::KeyRange keys,
                const void** pointers) {
  const std::int64_t row_stride_bytes = RowStrideBytes(cache);
  int key = 0;
  ForRuns(block, keys, [&](core::KvSlot at, std::int64_t run) {
    const std::uint8_t* row = cache.RowBytes(at, block.rows.task.kv_head);
    for (std::int64_t n = 0; n < run; ++n) pointers[key++] = row + n * row_stride_bytes;
  });
  for (; key % kRowMultiple != 0; ++key) pointers[key] = pointers[key - 1];
}

void UnpackRow(const BlockKeys& block, const core::KvCacheView& cache, int key, const void* row,
               float* destination) {
  UnpackArgs args = {};
  args.row = row;
  args.num_elems = cache.head_dim;
  args.destination = destination;
  if (cache.num_groups > 1) {
    args.scales = cache.Scales(block.SlotAt(key), block.rows.task.kv_head);
    args.scale_stride_elems = cache.scale_group_stride_elems;
    args.group_elems = cache.head_dim / cache.num_groups;
  }
  block.context.kernel.unpack[ElementOf(cache)](args);
}

void PrefetchRow(const void* row, std::int64_t row_bytes) {
  constexpr std::int64_t kLineBytes = 64;
  constexpr int kReadOnly = 0, kSecondLevel = 2;
  for (std::int64_t at = 0; at < row_bytes; at += kLineBytes) {
    __builtin_prefetch(static_cast<const std::uint8_t*>(row) + at, kReadOnly, kSecondLevel);
  }
}

// Rows as the kernels see them.
struct FoundRows {
  KvElement element;
  std::int64_t num_elems;
  const void* const* ahead;
};

// Where the kernels find the rows of the block: in the cache, or unpacked. Leaves what to prefetch
// in scratch.ahead.
FoundRows FindRows(const BlockKeys& block, const core::KvCacheView& cache,
                   const DecodeScratch& scratch, const void** pointers) {
  const bool is_interleaved = cache.layout == HEED_KV_LAYOUT_INTERLEAVED;
  if (!is_interleaved) {
    LocateRows(block, cache, block.keys, pointers);
    std::copy_n(pointers, PaddedElems(block.count()), scratch.ahead);
    LocateRowsAhead(block, cache, scratch.ahead);
  }
  if (IsDirect(cache, block.context.kernel)) {
    return {ElementOf(cache), cache.head_dim, scratch.ahead};
  }
  const std::int64_t stride_elems = PaddedElems(cache.head_dim);
  for (int key = 0; key < block.count(); ++key) {
    float* unpacked = scratch.unpacked + key * stride_elems;
    const void* row = pointers[key];
    if (is_interleaved) {
      row = GatherRow(cache, block.SlotAt(key), block.rows.task.kv_head, scratch.row_bytes);
    } else {
      PrefetchRow(
          scratch.ahead[key],
          cache.payload_elems * static_cast<std::int64_t>(core::DTypeBytes(cache.rows.dtype)));
    }
    UnpackRow(block, cache, key, row, unpacked);
    pointers[key] = unpacked;
  }
  for (int key = block.count(); key % kRowMultiple != 0; ++key) pointers[key] = pointers[key - 1];
  return {kElementF32, stride_elems, pointers};
}

// Copies the scales of rows, 0 for keys that no row of the tile sees.
void FillRowScales(const BlockKeys& block, const core::KvCacheView& cache, const bool* is_dead,
                   float* scales) {
  const std::int64_t stride_elems = cache.scales.row_stride_elems;
  int key = 0;
  ForRuns(block, block.keys, [&](core::KvSlot at, std::int64_t run) {
    const float* first = cache.Scales(at, block.rows.task.kv_head);
    for (std::int64_t n = 0; n < run; ++n) scales[key++] = first[n * stride_elems];
  });
  for (int n = 0; is_dead != nullptr && n < block.count(); ++n) {
    if (is_dead[n]) scales[n] = 0.0f;
  }
}

// The largest magnitude of a block of scales, NaN if one is not finite.
float LargestScale(const float* scales) {
  constexpr int kSideBySide = 16;  // one after the other each would wait for the one before
  std::array<float, kSideBySide> largest = {}, probe = {};
  for (int key = 0; key < kDecodeBlock; key += kSideBySide) {
    for (std::size_t n = 0; n < kSideBySide; ++n) {
      const float scale = scales[static_cast<std::size_t>(key) + n];
      largest[n] = std::max(largest[n], std::fabs(scale));
      probe[n] += scale * 0.0f;
    }
  }
  float all = 0.0f, spoilt = 0.0f;
  for (std::size_t n = 0; n < kSideBySide; ++n) {
    all = std::max(all, largest[n]);
    spoilt += probe[n];
  }
  return all + spoilt;
}

// Terms of every row, and the keys that they hide from all of them.
void FillTerms(const BlockKeys& block, const DecodeScratch& scratch, bool* is_dead) {
  std::fill(is_dead, is_dead + kDecodeBlock, true);
  for (int row = 0; row < block.rows.num_rows; ++row) {
    float* additive = scratch.additive + row * kDecodeBlock;
    FillAdditiveRow(block.context.problem, block.rows, row, block.keys, additive);
    for (int key = 0; key < block.count(); ++key) {
      is_dead[key] = is_dead[key] && std::isinf(additive[key]);
    }
  }
}

bool HasTerms(const core::ScoreRule& rule) {
  return rule.alibi_slopes.present() || rule.bias.present() || rule.mask.present();
}

// Arguments of the softmax of one row after another.
class SoftmaxRows {
 public:
  SoftmaxRows(const BlockKeys& block, const DecodeScratch& scratch)
      : block_(block), scratch_(scratch) {
    const core::DecodeProblem& problem = block.context.problem;
    const core::ScoreRule& rule = problem.attention.score;
    args_.num_keys = block.count();
    args_.scale = static_cast<float>(rule.scale);
    args_.softcap = static_cast<float>(rule.softcap);
    args_.key_scales = HasScaleOfRow(problem.k) ? scratch.key_scales : nullptr;
    args_.value_scales = HasScaleOfRow(problem.v) ? scratch.value_scales : nullptr;
    args_.additive = HasTerms(rule) ? scratch.additive : nullptr;
  }
  DecodeSoftmaxArgs At(int row) {
    const core::DecodeProblem& problem = block_.context.problem;
    if (row >= end_of_token_) FindVisible(row);
    DecodeSoftmaxArgs args = args_;
    args.scores = scratch_.scores + row * kDecodeBlock;
    if (args.additive != nullptr) args.additive += row * kDecodeBlock;
    args.max_log2 = scratch_.max_log2[row];
    args.sum = scratch_.sum[row];
    if (problem.attention.score.dropout.active()) {
      FillKeepRow(problem, block_.rows, row, block_.keys, scratch_.keep);
      args.keep = scratch_.keep;
    }
    return args;
  }

 private:
  // Rows of one token see the same keys.
  void FindVisible(int row) {
    const core::DecodeProblem& problem = block_.context.problem;
    const std::int64_t token = block_.rows.Token(problem, row);
    const device::KeyRange visible = problem.VisibleKeys(block_.rows.sequence, token);
    const auto within = [&](std::int64_t key) {
      return static_cast<int>(std::clamp<std::int64_t>(key - block_.keys.begin, 0, block_.count()));
    };
    args_.visible_begin = within(visible.begin);
    args_.visible_end = within(visible.end);
    end_of_token_ = (token + 1) * problem.attention.shape.group - block_.rows.first_row;
  }

  const BlockKeys& block_;
  const DecodeScratch& scratch_;
  DecodeSoftmaxArgs args_ = {};
  std::int64_t end_of_token_ = 0;
};

void TakeState(const DecodeSoftmaxArgs& args, int row, const DecodeScratch& scratch) {
  scratch.max_log2[row] = args.max_log2;
  scratch.sum[row] = args.sum;
  scratch.rescale[row] = args.rescale;
}

void RunRowBlock(const BlockKeys& block, const DecodeScratch& scratch) {
  const core::DecodeProblem& problem = block.context.problem;
  const DecodeKernel& kernel = block.context.kernel;
  const FoundRows keys = FindRows(block, problem.k, scratch, scratch.keys);
  kernel.scores[keys.element]({.q = scratch.q,
                               .q_stride_elems = scratch.q_stride_elems,
                               .num_rows = block.rows.num_rows,
                               .keys = scratch.keys,
                               .ahead = keys.ahead,
                               .num_keys = block.count(),
                               .num_elems = keys.num_elems,
                               .scores = scratch.scores});

  bool dead_keys[kDecodeBlock];
  const bool* is_dead = nullptr;
  if (HasTerms(problem.attention.score)) {
    FillTerms(block, scratch, dead_keys);
    is_dead = dead_keys;
  }
  if (HasScaleOfRow(problem.k)) FillRowScales(block, problem.k, is_dead, scratch.key_scales);
  if (HasScaleOfRow(problem.v)) FillRowScales(block, problem.v, is_dead, scratch.value_scales);
  // Dropout fills one array for each row in turn.
  const int side_by_side = problem.attention.score.dropout.active() ? 1 : block.rows.num_rows;
  std::array<DecodeSoftmaxArgs, kDecodeRows> softmax;
  SoftmaxRows rows(block, scratch);
  for (int first = 0; first < block.rows.num_rows; first += side_by_side) {
    for (int n = 0; n < side_by_side; ++n) {
      softmax[static_cast<std::size_t>(n)] = rows.At(first + n);
    }
    kernel.softmax(softmax.data(), side_by_side);
    for (int n = 0; n < side_by_side; ++n) {
      TakeState(softmax[static_cast<std::size_t>(n)], first + n, scratch);
    }
  }

  const FoundRows values = FindRows(block, problem.v, scratch, scratch.values);
  if (is_dead != nullptr) {
    std::memset(scratch.row_bytes, 0,
                static_cast<std::size_t>(scratch.o_stride_elems) * sizeof(float));
    for (int key = 0; key < block.count(); ++key) {
      if (is_dead[key]) scratch.values[key] = scratch.row_bytes;
    }
  }
  kernel.values[values.element]({.weights = scratch.scores,
                                 .num_rows = block.rows.num_rows,
                                 .values = scratch.values,
                                 .ahead = values.ahead,
                                 .num_keys = block.count(),
                                 .num_elems = values.num_elems,
                                 .rescale = scratch.rescale,
                                 .o = scratch.o,
                                 .o_stride_elems = scratch.o_stride_elems});
}

// Bytes between the rows of a block of 16 slots, and whether every vector of 64 bytes lies in one
// row or the rows follow each other.
bool HasWholeVectors(const core::KvCacheView& cache) {
  constexpr std::int64_t kVectorBytes = core::kInterleavedSlots * core::kInterleavedBytes;
  return cache.payload_elems % kVectorBytes == 0 ||
         cache.rows.row_stride_elems == cache.payload_elems;
}

void FillOffsets(const core::KvCacheView& cache, std::int64_t* offsets) {
  for (std::int64_t step = 0; step < cache.payload_elems / core::kInterleavedBytes; ++step) {
    const std::int64_t byte = core::InterleavedByte(0, step * core::kInterleavedBytes);
    offsets[step] =
        byte / cache.payload_elems * cache.rows.row_stride_elems + byte % cache.payload_elems;
  }
}

// Largest word of q such that a product over payload_elems of bytes stays inside 32 bits.
float WordLimit(std::int64_t payload_elems) {
  constexpr std::int64_t kLargestSum = (std::int64_t{1} << 31) - 1, kLargestByte = 128;
  return static_cast<float>(
      std::min<std::int64_t>(kLargestWord, kLargestSum / (kLargestByte * payload_elems)));
}

// Whole blocks of 16 slots around the keys.
device::KeyRange WholeSlots(device::KeyRange keys) {
  constexpr std::int64_t kSlots = core::kInterleavedSlots;
  return {keys.begin / kSlots * kSlots, (keys.end + kSlots - 1) / kSlots * kSlots};
}

// Scales of the keys inside; 0 outside.
void FillWordScales(const BlockKeys& whole, device::KeyRange inside, const core::KvCacheView& cache,
                    float* scales) {
  if (inside.end - inside.begin < kDecodeBlock) std::fill_n(scales, kDecodeBlock, 0.0f);
  const BlockKeys part = {whole.context, whole.rows, inside, {}};
  FillRowScales(part, cache, nullptr, scales + (inside.begin - whole.keys.begin));
}

using BlockAddresses = const std::uint8_t * [kDecodeBlock / core::kInterleavedSlots];

InterleavedBlocks FindBlocks(const BlockKeys& whole, RowKind kind, const DecodeScratch& scratch,
                             BlockAddresses& blocks) {
  constexpr int kSlots = core::kInterleavedSlots;
  const bool is_keys = kind == RowKind::kKeys;
  const core::KvCacheView& cache = is_keys ? whole.context.problem.k : whole.context.problem.v;
  const int num_blocks = whole.count() / kSlots;
  const std::int64_t num_steps = cache.payload_elems / core::kInterleavedBytes;
  int block = 0;
  ForRuns(whole, whole.keys, [&](core::KvSlot at, std::int64_t run) {
    const std::uint8_t* row = cache.RowBytes(at, whole.rows.task.kv_head);
    for (std::int64_t n = 0; n < run; n += kSlots)
      blocks[block++] = row + n * RowStrideBytes(cache);
  });
  LocateLines(whole, kind, num_blocks * num_steps, scratch.ahead_lines);
  return {blocks, scratch.ahead_lines, num_blocks,
          is_keys ? scratch.key_offsets : scratch.value_offsets, num_steps};
}

void RunWordBlock(const BlockKeys& inside, const DecodeScratch& scratch) {
  const core::DecodeProblem& problem = inside.context.problem;
  const DecodeKernel& kernel = inside.context.kernel;
  const BlockKeys whole = {inside.context,          inside.rows,  WholeSlots(inside.keys),
                           WholeSlots(inside.next), inside.share, inside.num_shares};
  BlockAddresses blocks;
  kernel.word_scores({.q_words = scratch.q_words,
                      .q_scales = scratch.q_scales,
                      .num_rows = whole.rows.num_rows,
                      .keys = FindBlocks(whole, RowKind::kKeys, scratch, blocks),
                      .scores = scratch.scores});
  PrefetchScales(whole, problem.k);
  PrefetchScales(whole, problem.v);
  FillWordScales(whole, inside.keys, problem.k, scratch.key_scales);
  FillWordScales(whole, inside.keys, problem.v, scratch.value_scales);
  const float largest = LargestScale(scratch.value_scales);
  std::array<WordSoftmaxArgs, kDecodeRows> softmax;
  SoftmaxRows rows(whole, scratch);
  for (int row = 0; row < whole.rows.num_rows; ++row) {
    softmax[static_cast<std::size_t>(row)] = {rows.At(row), largest,
                                              scratch.words + row * kWordsPerRow, 0.0f};
  }
  kernel.word_softmax(softmax.data(), whole.rows.num_rows);
  for (int row = 0; row < whole.rows.num_rows; ++row) {
    const WordSoftmaxArgs& args = softmax[static_cast<std::size_t>(row)];
    TakeState(args.row, row, scratch);
    scratch.word_scales[row] = args.word_scale;
  }
  kernel.word_values({.words = scratch.words,
                      .word_scales = scratch.word_scales,
                      .num_rows = whole.rows.num_rows,
                      .values = FindBlocks(whole, RowKind::kValues, scratch, blocks),
                      .rescale = scratch.rescale,
                      .o = scratch.o,
                      .o_stride_elems = scratch.o_stride_elems});
}

// The words of four elements in the form that the kernel wants.
void StoreWords(WordForm form, const std::array<std::int32_t, 4>& four, std::int32_t* words) {
  std::uint32_t first = 0, second = 0;
  if (form == WordForm::kPairs) {
    const auto pair = [](std::int32_t low, std::int32_t high) {
      return (static_cast<std::uint32_t>(low) & 0xFFFFu) | static_cast<std::uint32_t>(high) << 16;
    };
    first = pair(four[0], four[2]);
    second = pair(four[1], four[3]);
  } else {
    for (std::size_t n = 0; n < four.size(); ++n) {
      const std::int32_t high = (four[n] + 128) >> 8, low = four[n] - 256 * high;
      first |= (static_cast<std::uint32_t>(high) & 0xFFu) << 8 * n;
      second |= (static_cast<std::uint32_t>(low) & 0xFFu) << 8 * n;
    }
  }
  words[0] = static_cast<std::int32_t>(first);
  words[1] = static_cast<std::int32_t>(second);
}

}  // namespace

bool UsesWords(const DecodeContext& context) {
  const core::DecodeProblem& problem = context.problem;
  const core::ScoreRule& rule = problem.attention.score;
  return context.kernel.word_scores != nullptr && problem.k.layout == HEED_KV_LAYOUT_INTERLEAVED &&
         problem.k.num_groups == 1 && problem.v.num_groups == 1 &&
         problem.v.head_dim % kRowMultiple == 0 && HasWholeVectors(problem.k) &&
         HasWholeVectors(problem.v) && !HasTerms(rule) && !rule.dropout.active();
}

void PrepareWords(const DecodeContext& context, const DecodeRows& rows,
                  const DecodeScratch& scratch) {
  const core::KvCacheView& keys = context.problem.k;
  FillOffsets(keys, scratch.key_offsets);
  FillOffsets(context.problem.v, scratch.value_offsets);
  const float limit = WordLimit(keys.payload_elems);
  const std::int64_t num_steps = keys.payload_elems / core::kInterleavedBytes;
  for (int row = 0; row < rows.num_rows; ++row) {
    const float* q = scratch.q + row * scratch.q_stride_elems;
    float largest = 0.0f, probe = 0.0f;
    for (std::int64_t d = 0; d < keys.head_dim; ++d) {
      largest = std::max(largest, std::fabs(q[d]));
      probe += q[d] * 0.0f;
    }
    const double per_unit = largest > 0.0f && probe == 0.0f ? limit / double{largest} : 0.0;
    const auto word = [&](std::int64_t d) {
      const double scaled = d < keys.head_dim && per_unit > 0.0 ? q[d] * per_unit : 0.0;
      return static_cast<std::int32_t>(std::lrint(scaled));
    };
    std::int32_t* words = scratch.q_words + row * num_steps * 2;
    for (std::int64_t step = 0; step < num_steps; ++step) {
      const std::array<std::int32_t, 4> four = {word(4 * step), word(4 * step + 1),
                                                word(4 * step + 2), word(4 * step + 3)};
      StoreWords(context.kernel.word_form, four, words + 2 * step);
    }
    scratch.q_scales[row] = largest / limit + probe;
  }
}

void RunDecodeBlock(const DecodeContext& context, const DecodeRows& rows, const KeysAndNext& keys,
                    const DecodeScratch& scratch) {
  const BlockKeys block = {context, rows, keys.keys, keys.next, keys.share, keys.num_shares};
  if (UsesWords(context)) return RunWordBlock(block, scratch);
  RunRowBlock(block, scratch);
}

}  // namespace heed::cpu
