#include "cpu/forward_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "core/os/os.h"
#include "core/status.h"
#include "cpu/forward_job.h"
#include "device/dropout.h"
#include "device/float16.h"

namespace heed::test {
namespace {

constexpr std::uint8_t kPoison = 0xFF;  // NaN in every floating-point type
constexpr std::int64_t kLeadRows = 3;   // packed tensors start with rows of nobody

std::int64_t Bytes(core::DType dtype) { return static_cast<std::int64_t>(core::DTypeBytes(dtype)); }

void WriteElement(core::DType dtype, void* data, std::int64_t index, float value) {
  if (dtype == core::DType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else if (dtype == core::DType::kF16) {
    static_cast<std::uint16_t*>(data)[index] = device::Fp32ToFp16(value);
  } else {
    static_cast<std::uint16_t*>(data)[index] = device::Fp32ToBf16(value);
  }
}

class Normal {
 public:
  explicit Normal(unsigned seed) : engine_(seed) {}
  float operator()() { return distribution_(engine_); }
  bool Chance(double p) { return std::uniform_real_distribution<>(0, 1)(engine_) < p; }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> distribution_;
};

std::int64_t Total(const std::vector<std::int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}
std::int64_t Largest(const std::vector<std::int64_t>& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

// Strides of [batch][row][head][dim + gap] memory; returns the number of elements.
std::int64_t LayOut(core::RowsView* view, std::int64_t batch, std::int64_t rows, std::int64_t heads,
                    std::int64_t dim) {
  view->head_stride_elems = dim;
  view->row_stride_elems = heads * dim;
  view->batch_stride_elems = rows * view->row_stride_elems;
  return batch * view->batch_stride_elems;
}

std::vector<std::int32_t> Offsets(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> offsets = {static_cast<std::int32_t>(kLeadRows)};
  for (const std::int64_t length : lengths) {
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
  }
  return offsets;
}

std::vector<std::int32_t> AsInt32(const std::vector<std::int64_t>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

double ReadElement(core::DType dtype, const void* data, std::int64_t index) {
  if (dtype == core::DType::kF32) return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  return dtype == core::DType::kF16 ? device::Fp16ToFp32(bits) : device::Bf16ToFp32(bits);
}

Fixture::Fixture(const Spec& spec) : spec_(spec) {
  if (spec_.q_len.empty()) spec_.q_len = spec_.q_slots;
  if (spec_.kv_len.empty()) spec_.kv_len = spec_.kv_slots;
  SetShape();
  FillQueries();
  FillKeysAndValues();
  FillTerms();
  ComputeReference();
}

void Fixture::SetShape() {
  core::Shape& shape = problem_.shape;
  shape.batch = static_cast<std::int64_t>(spec_.q_slots.size());
  shape.num_q_heads = spec_.num_q_heads;
  shape.num_kv_heads = spec_.num_kv_heads;
  shape.group = spec_.num_q_heads / spec_.num_kv_heads;
  shape.max_q_len = Largest(spec_.q_slots);
  shape.max_kv_len = Largest(spec_.kv_slots);
  shape.total_q_rows =
      spec_.packed ? kLeadRows + Total(spec_.q_slots) + kLeadRows : shape.batch * shape.max_q_len;
  shape.head_dim = spec_.head_dim;
  shape.head_dim_v = spec_.head_dim_v;
  problem_.exec.backend = HEED_BACKEND_CPU;
  problem_.score.scale = spec_.scale;
  problem_.score.softcap = spec_.softcap;
  problem_.score.window = spec_.window;
  problem_.score.dropout = {spec_.drop_threshold, 0x123456789ABCDEFull, 77, nullptr};
  used_q_ = AsInt32(spec_.q_len);
  used_kv_ = AsInt32(spec_.kv_len);
  problem_.seqused_q = {used_q_.data(), 1, true};
  problem_.seqused_kv = {used_kv_.data(), 1, true};
  if (spec_.packed) {
    cu_q_ = Offsets(spec_.q_slots);
    problem_.q_packing = core::Packing::kPacked;
    problem_.cu_seqlens_q = {cu_q_.data(), 1, true};
  }
  if (spec_.packed && spec_.page_slots == 0) {
    cu_kv_ = Offsets(spec_.kv_slots);
    problem_.kv_packing = core::Packing::kPacked;
    problem_.cu_seqlens_kv = {cu_kv_.data(), 1, true};
  }
}

void Fixture::FillQueries() {
  const core::Shape& shape = problem_.shape;
  const std::int64_t batch = spec_.packed ? 1 : shape.batch;
  const std::int64_t rows = spec_.packed ? shape.total_q_rows : shape.max_q_len;
  for (core::RowsView* view : {&problem_.q, &problem_.o}) {
    const bool is_q = view == &problem_.q;
    std::vector<std::uint8_t>& memory = is_q ? q_ : o_;
    const std::int64_t dim = (is_q ? shape.head_dim : shape.head_dim_v) + spec_.gap_elems;
    const std::int64_t elems = LayOut(view, batch, rows, shape.num_q_heads, dim);
    memory.assign(static_cast<std::size_t>(elems * Bytes(spec_.dtype)), kPoison);
    view->data = memory.data();
    view->dtype = spec_.dtype;
    if (spec_.packed) view->batch_stride_elems = 0;
  }
  lse_.assign(static_cast<std::size_t>(batch * rows * shape.num_q_heads), -7.0f);
  problem_.lse = {lse_.data(), core::DType::kF32, spec_.packed ? 0 : rows * shape.num_q_heads, rows,
                  1};
  Normal normal(1);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const core::Sequence sequence = problem_.SequenceAt(b);
    for (std::int64_t token = 0; token < sequence.q_len; ++token) {
      for (std::int64_t head = 0; head < shape.num_q_heads; ++head) {
        const std::int64_t at =
            problem_.q.OffsetElems(sequence.q_batch, sequence.q_begin + token, head);
        for (std::int64_t d = 0; d < shape.head_dim; ++d) {
          WriteElement(spec_.dtype, q_.data(), at + d, spec_.score_magnitude * normal());
        }
      }
    }
  }
}

void Fixture::FillKeysAndValues() {
  const core::Shape& shape = problem_.shape;
  std::int64_t batch = spec_.packed ? 1 : shape.batch;
  std::int64_t rows =
      spec_.packed ? kLeadRows + Total(spec_.kv_slots) + kLeadRows : shape.max_kv_len;
  if (spec_.page_slots > 0) {
    // Pages in reverse order, one spare page at the front and unused table columns out of range.
    const std::int64_t pages_each = shape.max_kv_len / spec_.page_slots + 1;
    batch = shape.batch * pages_each + 1;
    rows = spec_.page_slots;
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      const std::int64_t needed = (spec_.kv_len[static_cast<std::size_t>(b)] + rows - 1) / rows;
      for (std::int64_t column = 0; column < pages_each; ++column) {
        const std::int64_t page = batch - 1 - (b + column * shape.batch);
        block_table_.push_back(column < needed ? static_cast<std::int32_t>(page) : -1);
      }
    }
    problem_.block_table = {block_table_.data(), pages_each, 1, rows, batch, pages_each, true};
  }
  for (core::RowsView* view : {&problem_.k, &problem_.v}) {
    const bool is_k = view == &problem_.k;
    std::vector<std::uint8_t>& memory = is_k ? k_ : v_;
    const std::int64_t dim = (is_k ? shape.head_dim : shape.head_dim_v) + spec_.gap_elems;
    const std::int64_t elems = LayOut(view, batch, rows, shape.num_kv_heads, dim);
    memory.assign(static_cast<std::size_t>(elems * Bytes(spec_.dtype)), kPoison);
    view->data = memory.data();
    view->dtype = spec_.dtype;
    if (spec_.packed && spec_.page_slots == 0) view->batch_stride_elems = 0;
  }
  Normal normal(2);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const core::Sequence sequence = problem_.SequenceAt(b);
    for (std::int64_t token = 0; token < sequence.kv_len; ++token) {
      // Keys hidden from every query stay NaN.
      if (spec_.mask && token >= sequence.kv_len - spec_.masked_keys) continue;
      for (std::int64_t head = 0; head < shape.num_kv_heads; ++head) {
        const std::int64_t key_at = problem_.KvOffsetElems(problem_.k, sequence, b, token, head);
        const std::int64_t value_at = problem_.KvOffsetElems(problem_.v, sequence, b, token, head);
        const double growth = 1.0 + spec_.key_growth * static_cast<double>(token);
        for (std::int64_t d = 0; d < shape.head_dim; ++d) {
          WriteElement(spec_.dtype, k_.data(), key_at + d, growth * normal());
        }
        for (std::int64_t d = 0; d < shape.head_dim_v; ++d) {
          WriteElement(spec_.dtype, v_.data(), value_at + d, normal());
        }
      }
    }
  }
}

void Fixture::FillTerms() {
  const core::Shape& shape = problem_.shape;
  core::ScoreRule& score = problem_.score;
  Normal normal(3);
  const std::int64_t per_head = shape.max_q_len * shape.max_kv_len;
  const std::int64_t elems = shape.batch * shape.num_q_heads * per_head;
  const std::array<std::int64_t, 4> strides = {shape.num_q_heads * per_head, per_head,
                                               shape.max_kv_len, 1};
  if (spec_.bias) {
    const core::DType dtype = spec_.bias_is_16_bit ? spec_.dtype : core::DType::kF32;
    bias_.resize(static_cast<std::size_t>(elems * Bytes(dtype)));
    for (std::int64_t i = 0; i < elems; ++i) {
      const bool hides = spec_.bias_hides && normal.Chance(0.2);
      const float value = hides ? -std::numeric_limits<float>::infinity() : normal();
      WriteElement(dtype, bias_.data(), i, value);
    }
    score.bias = {bias_.data(), dtype, strides};
  }
  if (spec_.mask) {
    mask_.resize(static_cast<std::size_t>(elems));
    for (std::int64_t i = 0; i < elems; ++i) {
      const std::int64_t b = i / strides[0];
      const bool hidden =
          i % shape.max_kv_len >= spec_.kv_len[static_cast<std::size_t>(b)] - spec_.masked_keys;
      mask_[static_cast<std::size_t>(i)] = !hidden && normal.Chance(0.7) ? 2 : 0;
    }
    score.mask = {mask_.data(), core::DType::kU8, strides};
  }
  for (std::int64_t head = 0; head < shape.num_q_heads; ++head) {
    slopes_.push_back(0.05f * static_cast<float>(head + 1));
    sinks_.push_back(normal());
  }
  if (spec_.alibi) score.alibi_slopes = {slopes_.data(), 0, 1, true};
  if (spec_.sinks) score.sinks = {sinks_.data(), 0, 1, true};
}

double Fixture::Score(const Row& row, std::int64_t key) const {
  const core::Sequence sequence = problem_.SequenceAt(row.batch);
  const core::ScoreRule& score = problem_.score;
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  const bool top_left = spec_.window.alignment == device::Alignment::kTopLeft;
  const std::int64_t position = row.token + (top_left ? 0 : sequence.kv_len - sequence.q_len);
  if (spec_.window.left >= 0 && key < position - spec_.window.left) return kHidden;
  if (spec_.window.right >= 0 && key > position + spec_.window.right) return kHidden;
  const auto at = static_cast<std::size_t>(
      score.mask.present() ? score.mask.OffsetElems(row.batch, row.head, row.token, key) : 0);
  if (spec_.mask && mask_[at] == 0) return kHidden;

  const std::int64_t query_at =
      problem_.q.OffsetElems(sequence.q_batch, sequence.q_begin + row.token, row.head);
  const std::int64_t key_at =
      problem_.KvOffsetElems(problem_.k, sequence, row.batch, key, row.head / problem_.shape.group);
  double dot = 0.0;
  for (std::int64_t d = 0; d < spec_.head_dim; ++d) {
    dot += ReadElement(spec_.dtype, q_.data(), query_at + d) *
           ReadElement(spec_.dtype, k_.data(), key_at + d);
  }
  double s = spec_.scale * dot;
  if (spec_.softcap > 0.0) s = spec_.softcap * std::tanh(s / spec_.softcap);
  if (spec_.bias) {
    s += ReadElement(score.bias.dtype, bias_.data(),
                     score.bias.OffsetElems(row.batch, row.head, row.token, key));
  }
  if (spec_.alibi) {
    s -= static_cast<double>(slopes_[static_cast<std::size_t>(row.head)]) *
         static_cast<double>(std::abs(position - key));
  }
  return s;
}

void Fixture::ReferenceRow(const Row& row) {
  const core::Sequence sequence = problem_.SequenceAt(row.batch);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Expected result{row, std::vector<double>(static_cast<std::size_t>(spec_.head_dim_v), 0.0),
                  std::vector<double>(static_cast<std::size_t>(spec_.head_dim_v), 0.0), -kInfinity};
  if (row.token < sequence.q_len) {
    std::vector<double> scores;
    const double sink =
        spec_.sinks ? static_cast<double>(sinks_[static_cast<std::size_t>(row.head)]) : -kInfinity;
    double max = sink;
    for (std::int64_t key = 0; key < sequence.kv_len; ++key) {
      scores.push_back(Score(row, key));
      max = std::max(max, scores.back());
    }
    double sum = spec_.sinks ? std::exp(sink - max) : 0.0;
    for (const double s : scores) sum += s == -kInfinity ? 0.0 : std::exp(s - max);
    if (sum > 0.0) result.lse = max + std::log(sum);
    const core::DropoutRule& drop = problem_.score.dropout;
    const auto head_index = static_cast<device::u32>(row.batch * spec_.num_q_heads + row.head);
    for (std::int64_t key = 0; key < sequence.kv_len; ++key) {
      const double s = scores[static_cast<std::size_t>(key)];
      if (s == -kInfinity) continue;
      double p = std::exp(s - max) / sum;
      if (drop.active()) {
        const device::u32 number = device::DropoutNumber(drop.seed, drop.offset, head_index,
                                                         static_cast<device::u32>(row.token),
                                                         static_cast<device::u32>(key));
        p *= number >= drop.drop_threshold ? 65536.0 / (65536.0 - drop.drop_threshold) : 0.0;
      }
      const std::int64_t at = problem_.KvOffsetElems(problem_.v, sequence, row.batch, key,
                                                     row.head / problem_.shape.group);
      for (std::int64_t d = 0; d < spec_.head_dim_v; ++d) {
        const double product = p * ReadElement(spec_.dtype, v_.data(), at + d);
        result.o[static_cast<std::size_t>(d)] += product;
        result.magnitude[static_cast<std::size_t>(d)] += std::fabs(product);
      }
    }
  }
  expected_.push_back(std::move(result));
}

void Fixture::ComputeReference() {
  for (std::int64_t b = 0; b < problem_.shape.batch; ++b) {
    for (std::int64_t head = 0; head < spec_.num_q_heads; ++head) {
      for (std::int64_t token = 0; token < problem_.SequenceAt(b).q_slots; ++token) {
        ReferenceRow({b, head, token});
      }
    }
  }
}

void Fixture::Run(const cpu::ForwardKernel& kernel, std::int64_t num_workers) {
  std::fill(o_.begin(), o_.end(), kPoison);
  std::fill(lse_.begin(), lse_.end(), -7.0f);
  const std::size_t bytes =
      cpu::WorkerBytes(kernel, problem_) * static_cast<std::size_t>(num_workers) +
      cpu::SharedBytes(kernel, problem_);
  void* workspace = core::os::AllocateAligned(bytes);
  std::memset(workspace, kPoison, bytes);
  cpu::RunForwardKernel(kernel, problem_, num_workers, workspace);
  core::os::FreeAligned(workspace);
}

std::int64_t Fixture::OutputOffset(const Row& row) const {
  const core::Sequence sequence = problem_.SequenceAt(row.batch);
  return problem_.o.OffsetElems(sequence.q_batch, sequence.q_begin + row.token, row.head);
}

std::string Fixture::Mismatch(int p_bits) const {
  // Rounding of the result to its type, of P to p_bits, and of scores and sums in fp32: a relative
  // error of 2^-18 in p stands for scores of magnitude up to about 30.
  const double output_unit = spec_.dtype == core::DType::kF32   ? 0.0
                             : spec_.dtype == core::DType::kF16 ? 0x1p-11
                                                                : 0x1p-8;
  const double relative = std::max(0x1p-18, std::ldexp(1.0, -p_bits));
  std::vector<std::uint8_t> untouched(o_.size(), 1);
  const std::int64_t elem_bytes = Bytes(spec_.dtype);
  for (const Expected& expected : expected_) {
    const std::int64_t at = OutputOffset(expected.row);
    const std::string where =
        core::Format("b%ld h%ld i%ld", expected.row.batch, expected.row.head, expected.row.token);
    for (std::int64_t d = 0; d < spec_.head_dim_v; ++d) {
      const double want = expected.o[static_cast<std::size_t>(d)];
      const double got = ReadElement(spec_.dtype, o_.data(), at + d);
      const double bound = relative * expected.magnitude[static_cast<std::size_t>(d)] +
                           output_unit * std::fabs(want) + 1e-7;
      if (!(std::fabs(got - want) <= bound)) {
        return core::Format("o %s d%ld: got %.9g, want %.9g +- %.2g", where.c_str(), d, got, want,
                            bound);
      }
      std::fill_n(untouched.begin() + (at + d) * elem_bytes, elem_bytes, 0);
    }
    const core::Sequence sequence = problem_.SequenceAt(expected.row.batch);
    const float lse = lse_[static_cast<std::size_t>(problem_.lse.OffsetElems(
        sequence.q_batch, expected.row.head, sequence.q_begin + expected.row.token))];
    const bool same_infinity = std::isinf(expected.lse) && lse == expected.lse;
    const double lse_bound = 4e-6 * std::max(1.0, std::fabs(expected.lse));
    if (!same_infinity && !(std::fabs(lse - expected.lse) <= lse_bound)) {
      return core::Format("lse %s: got %.9g, want %.9g", where.c_str(), static_cast<double>(lse),
                          expected.lse);
    }
  }
  for (std::size_t i = 0; i < o_.size(); ++i) {
    if (untouched[i] != 0 && o_[i] != kPoison) return core::Format("o byte %zu overwritten", i);
  }
  const auto num_written = static_cast<std::ptrdiff_t>(expected_.size());
  const auto num_left = std::count(lse_.begin(), lse_.end(), -7.0f);
  if (static_cast<std::ptrdiff_t>(lse_.size()) - num_left > num_written) return "lse overwritten";
  return "";
}

double Fixture::FrobeniusError() const {
  double error = 0.0, norm = 0.0;
  for (const Expected& expected : expected_) {
    const std::int64_t at = OutputOffset(expected.row);
    for (std::int64_t d = 0; d < spec_.head_dim_v; ++d) {
      const double want = expected.o[static_cast<std::size_t>(d)];
      const double difference = ReadElement(spec_.dtype, o_.data(), at + d) - want;
      error += difference * difference;
      norm += want * want;
    }
  }
  return std::sqrt(error / norm);
}

}  // namespace heed::test
