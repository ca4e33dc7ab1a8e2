#include "support/instance_builder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "support/input_values.h"

namespace heed::test {

InstanceBuilder::InstanceBuilder(ForwardInstance& instance)
    : instance_(instance),
      case_(instance.case_),
      placement_(case_.fenced ? Placement::kFence : Placement::kGuardBands),
      poison_(Random(case_.seed, "poison")
                  .Pick({Poison::kNaN, Poison::kSignallingNaN, Poison::kPositiveInfinity,
                         Poison::kNegativeInfinity})) {}

void InstanceBuilder::Build() {
  instance_.lengths_ = MakeLengths(case_);
  instance_.scale_ = case_.scale.value_or(1.0 / std::sqrt(static_cast<double>(case_.head_dim)));
  MakeLengthTensors();
  if (case_.page_slots > 0) MakeBlockTable();
  MakeRowTensors();
  MakeScoreTensors();
  if (case_.mask.present) FillMask();
  FillLiveSlots();
  if (case_.values == Values::kNanKey) PlantNanKey();
}

std::unique_ptr<StridedTensor> InstanceBuilder::NewRows(const char* name, Indices shape,
                                                        Use use) const {
  Random random(case_.seed, name);
  const Indices strides = RowsStrides(case_.layout, shape, use, random);
  return std::make_unique<StridedTensor>(case_.element, shape, strides, placement_, poison_);
}

std::unique_ptr<StridedTensor> InstanceBuilder::NewScore(const char* name,
                                                         const ScorePattern& pattern) const {
  Random random(case_.seed, name);
  Indices shape{case_.batch, case_.num_q_heads, case_.q_len, case_.kv_len};
  const Indices strides = ScoreStrides(case_.layout, pattern, shape, random);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (!pattern.has_axis[axis] && !pattern.expanded) shape[axis] = 1;
  }
  return std::make_unique<StridedTensor>(pattern.element, shape, strides, placement_, poison_);
}

std::unique_ptr<StridedTensor> InstanceBuilder::NewVector(Element element, Indices shape) const {
  return std::make_unique<StridedTensor>(element, shape, CompactStrides(shape), placement_,
                                         poison_);
}

void InstanceBuilder::MakeRowTensors() {
  const auto rows_shape = [&](bool packed, std::int64_t total_rows, std::int64_t rows,
                              std::int64_t heads, std::int64_t dims) {
    return packed ? Indices{total_rows, heads, dims} : Indices{case_.batch, rows, heads, dims};
  };
  const auto q_shape = [&](std::int64_t dims) {
    return rows_shape(case_.packed_q, instance_.lengths_.total_q_rows, case_.q_len,
                      case_.num_q_heads, dims);
  };
  const auto kv_shape = [&](std::int64_t dims) {
    if (case_.page_slots > 0) {
      const std::int64_t pages_per_sequence =
          (case_.kv_len + case_.page_slots - 1) / case_.page_slots;
      return Indices{case_.batch * pages_per_sequence + 2, case_.page_slots, case_.num_kv_heads,
                     dims};
    }
    return rows_shape(case_.packed_kv, instance_.lengths_.total_kv_rows, case_.kv_len,
                      case_.num_kv_heads, dims);
  };
  instance_.q_ = NewRows("q", q_shape(case_.head_dim), Use::kInput);
  instance_.k_ = NewRows("k", kv_shape(case_.head_dim), Use::kInput);
  instance_.v_ = NewRows("v", kv_shape(case_.head_dim_v), Use::kInput);
  instance_.o_ = NewRows("o", q_shape(case_.head_dim_v), Use::kOutput);
  if (case_.no_lse) return;
  const Indices lse_shape = instance_.LseShape();
  Random random(case_.seed, "lse strides");
  instance_.lse_ = std::make_unique<StridedTensor>(
      Element::kF32, lse_shape, LseStrides(case_.layout, lse_shape, random), placement_);
}

void InstanceBuilder::MakeLengthTensors() {
  const auto& sequences = instance_.lengths_.sequences;
  const auto fill = [&](std::int64_t count, auto value) {
    auto tensor = NewVector(Element::kI32, {count});
    tensor->Fill([&](const Indices& index) {
      return static_cast<double>(value(static_cast<std::size_t>(index[0])));
    });
    return tensor;
  };
  if (case_.packed_q) {
    instance_.cu_seqlens_q_ = fill(case_.batch + 1, [&](std::size_t at) {
      if (at < sequences.size()) return sequences[at].q_begin;
      return at == 0 ? 0 : sequences.back().q_begin + sequences.back().q_slots;
    });
  }
  if (case_.packed_kv) {
    instance_.cu_seqlens_kv_ = fill(case_.batch + 1, [&](std::size_t at) {
      if (at < sequences.size()) return sequences[at].kv_begin;
      return at == 0 ? 0 : sequences.back().kv_begin + sequences.back().kv_slots;
    });
  }
  if (case_.seqused_q) {
    instance_.seqused_q_ = fill(case_.batch, [&](std::size_t at) { return sequences[at].q_len; });
  }
  if (case_.seqused_kv) {
    instance_.seqused_kv_ = fill(case_.batch, [&](std::size_t at) { return sequences[at].kv_len; });
  }
}

// Pages in shuffled order. Entries that no token needs stay poison, far outside the pool.
void InstanceBuilder::MakeBlockTable() {
  const std::int64_t needed_pages = (case_.kv_len + case_.page_slots - 1) / case_.page_slots;
  const std::int64_t num_pages = case_.batch * needed_pages + 2;
  std::vector<std::int64_t> pages(static_cast<std::size_t>(num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  Random random(case_.seed, "pages");
  for (std::int64_t left = num_pages; left > 1; --left) {
    std::swap(pages[static_cast<std::size_t>(left - 1)],
              pages[static_cast<std::size_t>(random.Below(left))]);
  }
  instance_.block_table_ = NewVector(Element::kI32, {case_.batch, needed_pages + 1});
  std::size_t next_page = 0;
  for (std::int64_t b = 0; b < case_.batch; ++b) {
    const std::int64_t kv_len = instance_.lengths_.sequences[static_cast<std::size_t>(b)].kv_len;
    for (std::int64_t page = 0; page * case_.page_slots < kv_len; ++page) {
      instance_.block_table_->Set({b, page}, static_cast<double>(pages[next_page++]));
    }
  }
}

void InstanceBuilder::MakeScoreTensors() {
  if (case_.bias.present) instance_.bias_ = NewScore("bias", case_.bias);
  if (case_.mask.present) instance_.mask_ = NewScore("mask", case_.mask);
  Random random(case_.seed, "alibi and sinks");
  if (case_.alibi != Alibi::kOff) {
    const bool per_batch = case_.alibi == Alibi::kPerBatchHead;
    instance_.alibi_slopes_ =
        NewVector(Element::kF32,
                  per_batch ? Indices{case_.batch, case_.num_q_heads} : Indices{case_.num_q_heads});
    instance_.alibi_slopes_->Fill(
        [&](const Indices&) { return std::exp2(-8.0 * random.Uniform()); });
  }
  if (case_.sinks) {
    instance_.sinks_ = NewVector(Element::kF32, {case_.num_q_heads});
    instance_.sinks_->Fill([&](const Indices&) { return 3.0 * random.Normal(); });
  }
}

// A third of the entries hidden; where the mask has a query axis, whole rows too.
void InstanceBuilder::FillMask() {
  Random random(case_.seed, "mask entries");
  std::vector<bool> row_hidden(static_cast<std::size_t>(case_.q_len));
  for (std::size_t row = 0; row < row_hidden.size(); ++row) row_hidden[row] = random.Chance(0.15);
  const bool has_query_axis = case_.mask.has_axis[2];
  instance_.mask_->Fill([&](const Indices& index) {
    const bool hidden = has_query_axis && row_hidden[static_cast<std::size_t>(index[2])];
    if (hidden || random.Chance(0.33)) return 0.0;
    return case_.mask.element == Element::kBool ? 1.0 : random.Pick({1.0, 2.0, 128.0, 255.0});
  });
}

void InstanceBuilder::FillLiveSlots() {
  Random bias_values(case_.seed, "bias values");
  Random query_values(case_.seed, "q values");
  Random key_values(case_.seed, "kv values");
  const std::int64_t group = case_.num_q_heads / std::max<std::int64_t>(case_.num_kv_heads, 1);
  for (std::int64_t b = 0; b < case_.batch; ++b) {
    const SequenceLengths& sequence = instance_.lengths_.sequences[static_cast<std::size_t>(b)];
    for (std::int64_t kv_head = 0; kv_head < case_.num_kv_heads; ++kv_head) {
      std::vector<bool> key_is_seen(static_cast<std::size_t>(sequence.kv_len), false);
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (std::int64_t row = 0; row < sequence.q_len; ++row) {
          bool sees_any = false;
          for (std::int64_t token = 0; token < sequence.kv_len; ++token) {
            if (!instance_.Visible(b, head, row, token)) continue;
            sees_any = true;
            key_is_seen[static_cast<std::size_t>(token)] = true;
            if (!instance_.bias_) continue;
            const bool infinite = case_.bias.infinities && bias_values.Chance(0.2);
            instance_.SetBias(b, head, row, token, infinite ? -HUGE_VAL : bias_values.Normal());
          }
          if (sees_any) FillQueryRow(b, row, head, query_values);
        }
      }
      for (std::int64_t token = 0; token < sequence.kv_len; ++token) {
        const bool is_seen = key_is_seen[static_cast<std::size_t>(token)];
        if (is_seen) FillKey(b, token, kv_head, key_values);
        if (is_seen || case_.finite_values) FillValue(b, token, kv_head, key_values);
      }
    }
  }
}

void InstanceBuilder::FillQueryRow(std::int64_t b, std::int64_t row, std::int64_t head,
                                   Random& random) {
  for (std::int64_t dim = 0; dim < case_.head_dim; ++dim) {
    instance_.q_->Set(instance_.QIndex(b, row, head, dim), DrawQuery(case_, random));
  }
}

void InstanceBuilder::FillKey(std::int64_t b, std::int64_t token, std::int64_t kv_head,
                              Random& random) {
  for (std::int64_t dim = 0; dim < case_.head_dim; ++dim) {
    instance_.k_->Set(instance_.KvIndex(b, token, kv_head, dim), DrawKey(case_, token, random));
  }
}

void InstanceBuilder::FillValue(std::int64_t b, std::int64_t token, std::int64_t kv_head,
                                Random& random) {
  for (std::int64_t dim = 0; dim < case_.head_dim_v; ++dim) {
    instance_.v_->Set(instance_.KvIndex(b, token, kv_head, dim), DrawValue(case_, random));
  }
}

void InstanceBuilder::PlantNanKey() {
  Random random(case_.seed, "nan key");
  if (case_.batch == 0) return;
  const std::int64_t b = random.Below(case_.batch);
  const std::int64_t kv_len = instance_.lengths_.sequences[static_cast<std::size_t>(b)].kv_len;
  if (kv_len == 0) return;
  const std::int64_t token = random.Below(kv_len);
  const std::int64_t kv_head = random.Below(case_.num_kv_heads);
  const std::int64_t dim = random.Below(case_.head_dim);
  instance_.k_->SetPoison(instance_.KvIndex(b, token, kv_head, dim), Poison::kNaN);
}

}  // namespace heed::test
