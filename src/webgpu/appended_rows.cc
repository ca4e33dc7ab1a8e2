#include "webgpu/appended_rows.h"

#include "core/decode_append.h"
#include "device/prelude.h"
#include "webgpu/element.h"

namespace heed::webgpu {
namespace {

class RowsOfCache {
 public:
  RowsOfCache(const core::KvCacheView& cache, std::uint64_t max_binding_bytes)
      : cache_(cache), max_words_(max_binding_bytes / sizeof(std::uint32_t)) {}

  void Add(core::KvSlot at, std::int64_t head, const float* row) {
    if (packed_.empty() || packed_.back().words.size() + RowWords() > max_words_) Start();
    PackedRows& packed = packed_.back();
    const core::RowsView& rows = cache_.rows;
    RowCopy copy;
    copy.address =
        static_cast<char*>(rows.data) + rows.OffsetElems(at.page, at.slot, head) *
                                            static_cast<std::int64_t>(core::DTypeBytes(rows.dtype));
    copy.row_elems = cache_.head_dim;
    const std::uint64_t first_word = packed.rows.Append(copy);
    packed.words.resize(packed.rows.num_words);
    for (std::int64_t d = 0; d < cache_.head_dim; ++d) {
      StoreElement(packed.words.data() + first_word, rows.dtype, d, row[d]);
    }
  }
  void MoveTo(std::vector<PackedRows>* all) {
    for (PackedRows& packed : packed_) all->push_back(std::move(packed));
  }

 private:
  std::uint64_t RowWords() const {
    return static_cast<std::uint64_t>(packed_.back().rows.row_words);
  }
  void Start() {
    RowCopies& rows = packed_.emplace_back().rows;
    rows.dtype = cache_.rows.dtype;
    rows.row_words = device::CeilDiv(cache_.head_dim, rows.elems_per_word());
  }

  const core::KvCacheView& cache_;
  std::uint64_t max_words_;
  std::vector<PackedRows> packed_;
};

}  // namespace

std::vector<PackedRows> AppendedRows(const core::DecodeProblem& decode,
                                     std::uint64_t max_binding_bytes) {
  const core::Shape& shape = decode.attention.shape;
  RowsOfCache keys(decode.k, max_binding_bytes), values(decode.v, max_binding_bytes);
  std::vector<float> key(static_cast<std::size_t>(shape.head_dim));
  std::vector<float> value(static_cast<std::size_t>(shape.head_dim_v));
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const core::DecodeSequence sequence = decode.SequenceAt(batch);
    for (std::int64_t token = 0; token < shape.max_q_len; ++token) {
      const core::KvSlot at = decode.SlotOf(sequence, batch, sequence.first_new + token);
      for (std::int64_t head = 0; head < shape.num_kv_heads; ++head) {
        core::LoadNewRows(decode, batch, token, head, key.data(), value.data());
        keys.Add(at, head, key.data());
        values.Add(at, head, value.data());
      }
    }
  }
  std::vector<PackedRows> all;
  keys.MoveTo(&all);
  values.MoveTo(&all);
  return all;
}

}  // namespace heed::webgpu
