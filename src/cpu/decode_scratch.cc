#include "cpu/decode_scratch.h"

#include <algorithm>

namespace heed::cpu {
namespace {

// Hands out 64-byte aligned pieces; with a null base it only counts.
class Pieces {
 public:
  explicit Pieces(void* base) : base_(static_cast<std::uint8_t*>(base)) {}

  template <class T>
  T* Take(std::int64_t count) {
    T* piece = base_ != nullptr ? reinterpret_cast<T*>(base_ + end_bytes_) : nullptr;
    constexpr std::size_t kAlignment = 64;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    end_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }
  std::size_t end_bytes() const { return end_bytes_; }

 private:
  std::uint8_t* base_;
  std::size_t end_bytes_ = 0;
};

DecodeScratch Divide(const core::DecodeProblem& problem, Pieces* pieces) {
  DecodeScratch scratch = {};
  const std::int64_t q_stride = PaddedElems(problem.k.head_dim);
  const std::int64_t o_stride = PaddedElems(problem.v.head_dim);
  const bool is_interleaved = problem.k.layout == HEED_KV_LAYOUT_INTERLEAVED;
  const std::int64_t word_rows = is_interleaved ? kDecodeRows : 0;
  const std::int64_t q_word_rows = is_interleaved ? kTaskRows : 0;
  const std::int64_t key_steps = problem.k.payload_elems / core::kInterleavedBytes;
  const std::int64_t value_steps = problem.v.payload_elems / core::kInterleavedBytes;
  scratch.q_stride_elems = q_stride;
  scratch.o_stride_elems = o_stride;
  scratch.q = pieces->Take<float>(kTaskRows * q_stride);
  scratch.o = pieces->Take<float>(kTaskRows * o_stride);
  scratch.scores = pieces->Take<float>(kDecodeRows * kDecodeBlock);
  scratch.additive = pieces->Take<float>(kDecodeRows * kDecodeBlock);
  scratch.keep = pieces->Take<float>(kDecodeBlock);
  scratch.key_scales = pieces->Take<float>(kDecodeBlock);
  scratch.value_scales = pieces->Take<float>(kDecodeBlock);
  scratch.max_log2 = pieces->Take<float>(kTaskRows);
  scratch.sum = pieces->Take<float>(kTaskRows);
  scratch.rescale = pieces->Take<float>(kTaskRows);
  scratch.keys = pieces->Take<const void*>(kDecodeBlock + kRowMultiple);
  scratch.values = pieces->Take<const void*>(kDecodeBlock + kRowMultiple);
  scratch.ahead = pieces->Take<const void*>(kDecodeBlock + kRowMultiple);
  scratch.ahead_lines = pieces->Take<const void*>(
      is_interleaved ? kDecodeBlock / core::kInterleavedSlots * std::max(key_steps, value_steps)
                     : 0);
  scratch.unpacked = pieces->Take<float>(kDecodeBlock * std::max(q_stride, o_stride));
  scratch.row_bytes = pieces->Take<std::uint8_t>(std::max(q_stride, o_stride) *
                                                 static_cast<std::int64_t>(sizeof(float)));
  scratch.q_words = pieces->Take<std::int32_t>(q_word_rows * key_steps * 2);
  scratch.q_scales = pieces->Take<float>(q_word_rows);
  scratch.words = pieces->Take<std::int16_t>(word_rows * kWordsPerRow);
  scratch.word_scales = pieces->Take<float>(word_rows);
  scratch.key_offsets = pieces->Take<std::int64_t>(is_interleaved ? key_steps : 0);
  scratch.value_offsets = pieces->Take<std::int64_t>(is_interleaved ? value_steps : 0);
  return scratch;
}

}  // namespace

std::size_t DecodeScratchBytes(const core::DecodeProblem& problem) {
  Pieces pieces(nullptr);
  Divide(problem, &pieces);
  return pieces.end_bytes();
}

DecodeScratch MakeDecodeScratch(const core::DecodeProblem& problem, void* memory) {
  Pieces pieces(memory);
  return Divide(problem, &pieces);
}

DecodeScratch SkipRows(const DecodeScratch& scratch, std::int64_t first_row,
                       std::int64_t key_steps) {
  DecodeScratch rest = scratch;
  rest.q += first_row * scratch.q_stride_elems;
  rest.o += first_row * scratch.o_stride_elems;
  rest.max_log2 += first_row;
  rest.sum += first_row;
  rest.rescale += first_row;
  rest.q_words += first_row * key_steps * 2;
  rest.q_scales += first_row;
  return rest;
}

}  // namespace heed::cpu
