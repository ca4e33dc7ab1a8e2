#include "webgpu/unit_slice.h"

#include <algorithm>
#include <cstring>

#include "device/constants.h"
#include "device/dropout.h"
#include "device/float16.h"
#include "webgpu/element.h"

namespace heed::webgpu {
namespace {

using core::DType;
using core::DTypeBytes;

void* AddressOf(void* data, std::int64_t offset_elems, DType dtype) {
  return static_cast<char*>(data) + offset_elems * static_cast<std::int64_t>(DTypeBytes(dtype));
}

// One axis of a score tensor that is packed: broadcast axes once.
std::int64_t Extent(std::int64_t stride_elems, std::int64_t count) {
  return stride_elems != 0 ? count : 1;
}

device::KeyRange VisibleRange(const core::ForwardProblem& problem, const Unit& unit,
                              std::int64_t query) {
  return device::VisibleKeys(problem.score.window, query, unit.sequence.q_len,
                             unit.sequence.kv_len);
}

}  // namespace

UnitSlice::UnitSlice(const core::ForwardProblem& problem, const UnitChunks& chunks,
                     std::uint64_t max_binding_bytes, const KeyRows& keys)
    : forward_problem(problem),
      unit_chunks(chunks),
      key_rows(keys),
      words_per_group(GroupWords(problem.dtype())),
      head_dim_groups(device::CeilDiv<std::int64_t>(problem.shape.head_dim, 4)),
      head_dim_v_groups(device::CeilDiv<std::int64_t>(problem.shape.head_dim_v, 4)),
      max_words_(static_cast<std::int64_t>(max_binding_bytes / sizeof(std::uint32_t))),
      mask_pitch_words_(device::CeilDiv<std::int64_t>(chunks.keys, 32)) {
  FillParams();
}

void UnitSlice::FillParams() {
  const core::ScoreRule& score = forward_problem.score;
  const std::int64_t group = forward_problem.shape.group;
  UnitParams& p = uniform_params;
  const auto word = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  p.group = word(group);
  p.head_dim_groups = word(head_dim_groups);
  p.head_dim_v_groups = word(head_dim_v_groups);
  p.scale = static_cast<float>(score.scale);
  p.scale_log2 = static_cast<float>(score.scale * device::kLog2E);
  p.q_row = word(group * head_dim_groups);
  p.q_head = word(head_dim_groups);
  p.k_row = word(key_rows.RowWords(KeySide::kKey) / key_rows.ElementWords());
  p.v_row = word(key_rows.RowWords(KeySide::kValue) / key_rows.ElementWords());
  p.k_scale_groups = word(key_rows.GroupsPerScale(KeySide::kKey));
  p.v_scale_groups = word(key_rows.GroupsPerScale(KeySide::kValue));
  p.o_row = word(group * head_dim_v_groups);
  p.o_head = word(head_dim_v_groups);
  if (score.softcap > 0.0) {
    p.flags |= kHasSoftcap;
    p.softcap = static_cast<float>(score.softcap);
  }
  if (score.bias.present()) {
    p.flags |= kHasBias;
    const auto& stride = score.bias.stride_elems;
    p.bias_key = stride[3] != 0 ? 1 : 0;
    const std::int64_t pitch = Extent(stride[3], unit_chunks.keys);
    p.bias_head = stride[1] != 0 ? word(pitch) : 0;
    p.bias_row = stride[2] != 0 ? word(pitch * Extent(stride[1], group)) : 0;
  }
  if (score.mask.present()) {
    p.flags |= kHasMask;
    const auto& stride = score.mask.stride_elems;
    p.mask_head = stride[1] != 0 ? word(mask_pitch_words_) : 0;
    p.mask_row = stride[2] != 0 ? word(mask_pitch_words_ * Extent(stride[1], group)) : 0;
  }
  if (score.alibi_slopes.present()) p.flags |= kHasAlibi;
  if (score.dropout.active()) {
    p.flags |= kHasDropout;
    const device::DropoutStream stream =
        device::MakeDropoutStream(score.dropout.seed, score.dropout.offset);
    p.dropout_key[0] = stream.key.low;
    p.dropout_key[1] = stream.key.high;
    p.dropout_offset = stream.offset_low;
    p.drop_threshold = score.dropout.drop_threshold;
    p.keep_scale = device::KeepScale(score.dropout.drop_threshold);
  }
}

// A paged sequence's other pages do not follow from the address of its first key. Under a mask,
// keys that no row of the unit sees are zeroed, so units do not share them.
UnitSlice::Source UnitSlice::KeySource(const core::RowsView& view, const Unit& unit) const {
  if (unit.num_keys == 0) return {nullptr, 0, 0, 0};
  const std::int64_t offset_elems =
      forward_problem.KvOffsetElems(view, unit.sequence, unit.batch, unit.first_key, unit.kv_head);
  Source source = {AddressOf(view.data, offset_elems, view.dtype), unit.num_keys,
                   forward_problem.block_table.present() ? unit.batch : 0, 0};
  if (forward_problem.score.mask.present()) {
    std::get<2>(source) = unit.batch * forward_problem.shape.num_kv_heads + unit.kv_head;
    std::get<3>(source) = unit.first_query + 1;
  }
  return source;
}

UnitSlice::Source UnitSlice::ScoreSource(const core::ScoreView& view, const Unit& unit) const {
  const std::int64_t offset_elems = view.OffsetElems(
      unit.batch, unit.kv_head * forward_problem.shape.group, unit.first_query, unit.first_key);
  return {AddressOf(view.data, offset_elems, view.dtype),
          Extent(view.stride_elems[2], unit.num_queries),
          Extent(view.stride_elems[3], unit.num_keys), 0};
}

UnitSlice::Source UnitSlice::MaskSource(const Unit& unit) const {
  Source source = ScoreSource(forward_problem.score.mask, unit);
  std::get<2>(source) = unit.num_keys;
  return source;
}

UnitSlice::Sizes UnitSlice::InputNeeds(const Unit& unit) const {
  const std::int64_t group = forward_problem.shape.group;
  const auto unless_placed = [&](UnitBinding binding, const Source& source,
                                 std::int64_t words) -> std::int64_t {
    return places_[binding].contains(source) ? 0 : words;
  };
  Sizes sizes;
  sizes.words[kQueries] = unit.num_queries * group * head_dim_groups * words_per_group;
  sizes.words[kKeys] = unless_placed(kKeys, KeySource(forward_problem.k, unit),
                                     unit.num_keys * key_rows.RowWords(KeySide::kKey));
  sizes.words[kValues] = unless_placed(kValues, KeySource(forward_problem.v, unit),
                                       unit.num_keys * key_rows.RowWords(KeySide::kValue));
  const auto score_rows = [&](const core::ScoreView& view) {
    return Extent(view.stride_elems[1], group) * Extent(view.stride_elems[2], unit.num_queries);
  };
  const core::ScoreView& bias = forward_problem.score.bias;
  if (bias.present()) {
    sizes.words[kBias] =
        unless_placed(kBias, ScoreSource(bias, unit),
                      score_rows(bias) * Extent(bias.stride_elems[3], unit_chunks.keys));
  }
  const core::ScoreView& mask = forward_problem.score.mask;
  if (mask.present()) {
    sizes.words[kMask] =
        unless_placed(kMask, MaskSource(unit), score_rows(mask) * mask_pitch_words_);
  }
  sizes.words[kTable] = static_cast<std::int64_t>(sizeof(UnitRecord) / 4) + 2 * group;
  return sizes;
}

bool UnitSlice::HasRoom(const Sizes& sizes, std::int64_t num_tasks) const {
  const auto tasks = static_cast<std::int64_t>(task_records.size()) + num_tasks;
  if (tasks > static_cast<std::int64_t>(kMaxWorkgroups)) return false;
  for (std::size_t binding = 0; binding < kTable; ++binding) {
    const std::int64_t used = WordsIn(static_cast<UnitBinding>(binding));
    if (used + sizes.words[binding] > max_words_) return false;
  }
  const std::size_t table_words =
      unit_records.size() * sizeof(UnitRecord) / 4 + table_values.size();
  return static_cast<std::int64_t>(table_words) + sizes.words[kTable] +
             tasks * static_cast<std::int64_t>(sizeof(TaskRecord) / 4) <=
         max_words_;
}

std::uint32_t UnitSlice::WordsIn(UnitBinding binding) const {
  return static_cast<std::uint32_t>(packed_dispatch.BindingBytes(binding) / sizeof(std::uint32_t));
}

RowCopy UnitSlice::QueryRows(const core::RowsView& view, const Unit& unit,
                             std::int64_t head_dim) const {
  RowCopy copy;
  const std::int64_t group = forward_problem.shape.group;
  const std::int64_t offset_elems = view.OffsetElems(
      unit.sequence.q_batch, unit.sequence.q_begin + unit.first_query, unit.kv_head * group);
  copy.address = AddressOf(view.data, offset_elems, view.dtype);
  copy.num_outer = unit.num_queries;
  copy.num_inner = group;
  copy.outer_stride_elems = view.row_stride_elems;
  copy.inner_stride_elems = view.head_stride_elems;
  copy.row_elems = head_dim;
  return copy;
}

std::uint32_t UnitSlice::NoteQueryRows(const Unit& unit) {
  RowCopies& rows = packed_dispatch.rows[kQueries];
  rows.dtype = forward_problem.q.dtype;
  rows.row_words = head_dim_groups * words_per_group;
  const std::uint64_t first_word =
      rows.Append(QueryRows(forward_problem.q, unit, forward_problem.shape.head_dim));
  return static_cast<std::uint32_t>(first_word / static_cast<std::uint64_t>(words_per_group));
}

std::uint32_t UnitSlice::PackQueryRows(UnitBinding binding, const core::RowsView& view,
                                       const Unit& unit) {
  const std::int64_t group = forward_problem.shape.group;
  const bool is_query = binding == kQueries;
  const auto row_words =
      static_cast<std::size_t>((is_query ? head_dim_groups : head_dim_v_groups) * words_per_group);
  const std::size_t row_bytes =
      static_cast<std::size_t>(is_query ? forward_problem.shape.head_dim
                                        : forward_problem.shape.head_dim_v) *
      DTypeBytes(view.dtype);
  std::vector<std::uint32_t>& words = packed_dispatch.storage[binding];
  const std::size_t begin = words.size();
  words.resize(begin + static_cast<std::size_t>(unit.num_queries * group) * row_words);
  std::uint32_t* target = words.data() + begin;
  for (std::int64_t query = unit.first_query; query < unit.first_query + unit.num_queries;
       ++query) {
    for (std::int64_t head = unit.kv_head * group; head < (unit.kv_head + 1) * group; ++head) {
      const std::int64_t offset_elems =
          view.OffsetElems(unit.sequence.q_batch, unit.sequence.q_begin + query, head);
      std::memcpy(target, AddressOf(view.data, offset_elems, view.dtype), row_bytes);
      target += row_words;
    }
  }
  return static_cast<std::uint32_t>(begin / static_cast<std::size_t>(words_per_group));
}

// Keys that nothing sees are packed as 0: their weights are 0, but 0 times NaN is not.
std::uint32_t UnitSlice::PackKeyRows(KeySide side, const Unit& unit,
                                     const std::vector<bool>& is_seen) {
  const bool is_value = side == KeySide::kValue;
  const UnitBinding binding = is_value ? kValues : kKeys;
  const Source source = KeySource(is_value ? forward_problem.v : forward_problem.k, unit);
  const auto placed = places_[binding].find(source);
  if (placed != places_[binding].end()) return placed->second;
  const std::uint32_t place =
      WordsIn(binding) / static_cast<std::uint32_t>(key_rows.ElementWords());
  if (key_rows.storage() == KeyStorage::kStored) {
    NoteKeyRows(side, unit, is_seen);
  } else {
    const auto row_words = static_cast<std::size_t>(key_rows.RowWords(side));
    std::vector<std::uint32_t>& words = packed_dispatch.storage[binding];
    const std::size_t begin = words.size();
    words.resize(begin + static_cast<std::size_t>(unit.num_keys) * row_words);
    for (std::int64_t key = 0; key < unit.num_keys; ++key) {
      const auto at = static_cast<std::size_t>(key);
      if (!is_seen.empty() && !is_seen[at]) continue;
      key_rows.Pack(side, unit, unit.first_key + key, words.data() + begin + at * row_words);
    }
  }
  places_[binding].emplace(source, place);
  return place;
}

void UnitSlice::NoteKeyRows(KeySide side, const Unit& unit, const std::vector<bool>& is_seen) {
  const bool is_value = side == KeySide::kValue;
  const core::RowsView& view = is_value ? forward_problem.v : forward_problem.k;
  RowCopies& rows = packed_dispatch.rows[is_value ? kValues : kKeys];
  rows.dtype = view.dtype;
  rows.row_words = key_rows.RowWords(side);
  const auto is_zero = [&](std::int64_t key) {
    return !is_seen.empty() && !is_seen[static_cast<std::size_t>(key)];
  };
  const auto offset_of = [&](std::int64_t key) {
    return forward_problem.KvOffsetElems(view, unit.sequence, unit.batch, unit.first_key + key,
                                         unit.kv_head);
  };
  // Runs of keys that are a stride apart, all seen or all not. Only pages break the stride.
  const bool is_paged = forward_problem.block_table.present();
  for (std::int64_t first = 0, end = 0; first < unit.num_keys; first = end) {
    RowCopy copy;
    copy.is_constant = is_zero(first);
    const std::int64_t offset_elems = offset_of(first);
    if (!copy.is_constant) copy.address = AddressOf(view.data, offset_elems, view.dtype);
    end = is_paged || !is_seen.empty() ? first + 1 : unit.num_keys;
    while (end < unit.num_keys && is_zero(end) == copy.is_constant &&
           (!is_paged || copy.is_constant ||
            offset_of(end) == offset_elems + (end - first) * view.row_stride_elems)) {
      ++end;
    }
    copy.num_inner = end - first;
    copy.inner_stride_elems = view.row_stride_elems;
    copy.row_elems = is_value ? forward_problem.shape.head_dim_v : forward_problem.shape.head_dim;
    rows.Append(copy);
  }
}

std::uint32_t UnitSlice::NoteBias(const Unit& unit) {
  const core::ScoreView& bias = forward_problem.score.bias;
  const Source source = ScoreSource(bias, unit);
  const auto placed = places_[kBias].find(source);
  if (placed != places_[kBias].end()) return placed->second;
  const std::int64_t heads = Extent(bias.stride_elems[1], forward_problem.shape.group);
  RowCopies& rows = packed_dispatch.rows[kBias];
  rows.dtype = bias.dtype;
  rows.widens = true;
  rows.row_words = Extent(bias.stride_elems[3], unit_chunks.keys);
  rows.elem_stride_elems = std::max<std::int64_t>(bias.stride_elems[3], 1);
  RowCopy copy;
  copy.address = const_cast<void*>(std::get<0>(source));
  copy.num_outer = Extent(bias.stride_elems[2], unit.num_queries);
  copy.num_inner = heads;
  copy.outer_stride_elems = bias.stride_elems[2];
  copy.inner_stride_elems = bias.stride_elems[1];
  copy.row_elems = Extent(bias.stride_elems[3], unit.num_keys);
  const auto place = static_cast<std::uint32_t>(rows.Append(copy));
  places_[kBias].emplace(source, place);
  return place;
}

std::uint32_t UnitSlice::PackMask(const Unit& unit) {
  const core::ScoreView& mask = forward_problem.score.mask;
  const Source source = MaskSource(unit);
  const auto placed = places_[kMask].find(source);
  if (placed != places_[kMask].end()) return placed->second;
  const std::uint32_t place = WordsIn(kMask);
  std::vector<std::uint32_t>& words = packed_dispatch.storage[kMask];
  const std::int64_t heads = Extent(mask.stride_elems[1], forward_problem.shape.group);
  for (std::int64_t query = 0; query < Extent(mask.stride_elems[2], unit.num_queries); ++query) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::size_t begin = words.size();
      words.resize(begin + static_cast<std::size_t>(mask_pitch_words_));
      const std::int64_t offset_elems =
          mask.OffsetElems(unit.batch, unit.kv_head * forward_problem.shape.group + head,
                           unit.first_query + query, unit.first_key);
      const auto* bytes = static_cast<const std::uint8_t*>(mask.data) + offset_elems;
      for (std::int64_t key = 0; key < unit.num_keys; ++key) {
        const bool is_attended = bytes[key * mask.stride_elems[3]] != 0;
        words[begin + static_cast<std::size_t>(key / 32)] |= std::uint32_t{is_attended}
                                                             << (key % 32);
      }
    }
  }
  places_[kMask].emplace(source, place);
  return place;
}

// Whether row (query, head of the group), counted in the unit, sees one of the unit's keys.
bool UnitSlice::Sees(const Unit& unit, const UnitRecord& record, std::int64_t query,
                     std::int64_t head) const {
  const device::KeyRange range = VisibleRange(forward_problem, unit, unit.first_query + query);
  const std::int64_t first = std::max<std::int64_t>(range.begin - unit.first_key, 0);
  const std::int64_t end = std::min<std::int64_t>(range.end - unit.first_key, unit.num_keys);
  if (!forward_problem.score.mask.present()) return first < end;
  const std::uint32_t* row = packed_dispatch.storage[kMask].data() + record.begin[kMask] +
                             query * uniform_params.mask_row + head * uniform_params.mask_head;
  for (std::int64_t key = first; key < end; ++key) {
    if ((row[key / 32] >> (key % 32) & 1) != 0) return true;
  }
  return false;
}

// Keys that some row of the unit sees under the mask. Window and lengths alone hide keys outside
// one range, which the shaders leave out by themselves.
std::vector<bool> UnitSlice::SeenKeys(const Unit& unit, const UnitRecord& record) const {
  std::vector<bool> is_seen(static_cast<std::size_t>(unit.num_keys));
  for (std::int64_t query = 0; query < unit.num_queries; ++query) {
    const device::KeyRange range = VisibleRange(forward_problem, unit, unit.first_query + query);
    const std::int64_t first = std::max<std::int64_t>(range.begin - unit.first_key, 0);
    const std::int64_t end = std::min<std::int64_t>(range.end - unit.first_key, unit.num_keys);
    for (std::int64_t head = 0; head < forward_problem.shape.group; ++head) {
      const std::uint32_t* row = packed_dispatch.storage[kMask].data() + record.begin[kMask] +
                                 query * uniform_params.mask_row + head * uniform_params.mask_head;
      for (std::int64_t key = first; key < end; ++key) {
        if ((row[key / 32] >> (key % 32) & 1) != 0) is_seen[static_cast<std::size_t>(key)] = true;
      }
    }
  }
  return is_seen;
}

void UnitSlice::AddHeadValues(const Unit& unit) {
  const core::ScoreRule& score = forward_problem.score;
  for (const core::HeadView* view : {&score.alibi_slopes, &score.sinks}) {
    for (std::int64_t head = 0; head < forward_problem.shape.group; ++head) {
      const float value =
          view->present() ? view->At(unit.batch, unit.kv_head * forward_problem.shape.group + head)
                          : 0.0f;
      table_values.push_back(device::BitsOfFp32(value));
    }
  }
}

UnitRecord UnitSlice::PackInputs(const Unit& unit) {
  const core::Shape& shape = forward_problem.shape;
  const auto word = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const device::Diagonals diagonals = device::VisibleDiagonals(
      forward_problem.score.window, unit.sequence.q_len, unit.sequence.kv_len);
  UnitRecord record;
  record.begin[kQueries] = packs_queries_at_once ? PackQueryRows(kQueries, forward_problem.q, unit)
                                                 : NoteQueryRows(unit);
  std::vector<bool> is_seen;
  if (forward_problem.score.mask.present()) {
    record.begin[kMask] = PackMask(unit);
    is_seen = SeenKeys(unit, record);
  }
  record.begin[kKeys] = PackKeyRows(KeySide::kKey, unit, is_seen);
  record.begin[kValues] = PackKeyRows(KeySide::kValue, unit, is_seen);
  if (forward_problem.score.bias.present()) record.begin[kBias] = NoteBias(unit);
  record.first_query = word(unit.first_query);
  record.num_rows = word(unit.num_queries * shape.group);
  record.first_key = word(unit.first_key);
  record.end_key = word(unit.first_key + unit.num_keys);
  record.low_diagonal = static_cast<std::int32_t>(diagonals.low);
  record.high_diagonal = static_cast<std::int32_t>(diagonals.high);
  record.shift = static_cast<std::int32_t>(device::PositionShift(
      forward_problem.score.window.alignment, unit.sequence.q_len, unit.sequence.kv_len));
  record.first_head = word(unit.batch * shape.num_q_heads + unit.kv_head * shape.group);
  record.head_values = word(static_cast<std::int64_t>(table_values.size()));
  AddHeadValues(unit);
  return record;
}

Dispatch* UnitSlice::Finish() {
  std::vector<std::uint32_t>& table = packed_dispatch.storage[kTable];
  const std::size_t record_words = unit_records.size() * sizeof(UnitRecord) / 4;
  const std::size_t task_words = task_records.size() * sizeof(TaskRecord) / 4;
  for (UnitRecord& record : unit_records) {
    record.head_values += static_cast<std::uint32_t>(record_words);
  }
  uniform_params.tasks_begin = static_cast<std::uint32_t>(record_words + table_values.size());
  table.resize(uniform_params.tasks_begin + task_words);
  std::memcpy(table.data(), unit_records.data(), record_words * 4);
  std::copy(table_values.begin(), table_values.end(),
            table.begin() + static_cast<std::ptrdiff_t>(record_words));
  std::memcpy(table.data() + uniform_params.tasks_begin, task_records.data(), task_words * 4);
  packed_dispatch.uniform.resize(sizeof(UnitParams) / 4);
  std::memcpy(packed_dispatch.uniform.data(), &uniform_params, sizeof(uniform_params));
  // A binding has at least one element, whatever it is.
  for (std::vector<std::uint32_t>& words : packed_dispatch.storage) {
    words.resize(std::max<std::size_t>(words.size(), 4));
  }
  packed_dispatch.num_workgroups = static_cast<std::uint32_t>(task_records.size());
  return &packed_dispatch;
}

Dispatch* UnitSlice::DropInputs() {
  for (std::size_t binding = 0; binding < kNumUnitBindings; ++binding) {
    if (packed_dispatch.is_output[binding]) continue;
    packed_dispatch.storage[binding] = {};
    packed_dispatch.rows[binding] = {};
  }
  return &packed_dispatch;
}

}  // namespace heed::webgpu
