#include "decode/decode_instance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "decode/payload.h"
#include "support/kernel_rows.h"
#include "support/tested_targets.h"
#include "support/tolerance.h"

namespace heed::test {
namespace {

constexpr unsigned char kPoison = 0xFF;

// One row of payload: bytes drawn, and the numbers they stand for worked out here once more.
struct DrawnRow {
  double norm = 0.0;
  double largest = 0.0;  // magnitude that the format could hold with these scales
};

void Put16(std::uint8_t* at, Element element, double value) { StoreElement(element, at, value); }

}  // namespace

DecodeInstance::DecodeInstance(const DecodeCase& decode_case)
    : case_(decode_case), random_(decode_case.index, "decode values") {
  const DecodeCase& c = case_;
  const heed_dtype_t dtype = ElementToAbi(c.element);
  q_ = Numbers({c.batch, c.new_tokens, c.num_q_heads(), c.head_dim}, 1.0);
  o_.emplace(dtype,
             std::vector<std::int64_t>{c.batch, c.new_tokens, c.num_q_heads(), c.head_dim_v});
  lse_.emplace(kF32, std::vector<std::int64_t>{c.batch, c.num_q_heads(), c.new_tokens});
  FillTables();
  FillCache();
  if (c.appends) {
    k_new_ = Numbers({c.batch, c.new_tokens, c.num_kv_heads, c.head_dim}, 1.0);
    v_new_ = Numbers({c.batch, c.new_tokens, c.num_kv_heads, c.head_dim_v}, 1.0);
    args.k_new = &k_new_->abi;
    args.v_new = &v_new_->abi;
  }
  FillScore();
  args.q = &q_->abi;
  args.o = &o_->abi;
  args.lse = &lse_->abi;
  args.k_cache = &k_->abi;
  args.v_cache = &v_->abi;
  args.num_splits = c.num_splits;
  exec.fixed_split = c.fixed_split ? HEED_ON : HEED_OFF;
  args.exec = &exec;
}

OwnedTensor DecodeInstance::Numbers(std::vector<std::int64_t> shape, double deviation) {
  OwnedTensor tensor(ElementToAbi(case_.element), shape);
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  const std::size_t bytes = ElementBytes(case_.element);
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = std::clamp(random_.Normal(), -4.0, 4.0) * deviation;
    StoreElement(case_.element, tensor.data<std::uint8_t>() + static_cast<std::size_t>(i) * bytes,
                 value);
  }
  return tensor;
}

OwnedTensor DecodeInstance::MakeCache(std::int64_t elems, heed_dtype_t dtype) {
  OwnedTensor cache(dtype, {num_pages_, page_slots_, case_.num_kv_heads, elems}, kPoison);
  if (case_.is_head_major) {
    cache.strides[1] = elems;
    cache.strides[2] = page_slots_ * elems;
  }
  return cache;
}

// Pages in random order and some to spare, or rows of a larger cache.
void DecodeInstance::FillTables() {
  const DecodeCase& c = case_;
  lengths_ = OwnedTensor::Indices(c.lengths);
  args.cache_lengths = &lengths_->abi;
  if (!c.leftpad.empty()) {
    leftpad_ = OwnedTensor::Indices(c.leftpad);
    args.cache_leftpad = &leftpad_->abi;
  }
  const bool is_paged = c.page_slots > 0;
  page_slots_ = is_paged ? c.page_slots : c.slots;
  const std::int64_t max_pages =
      is_paged ? std::max<std::int64_t>(1, (c.LongestKeys() + page_slots_ - 1) / page_slots_) : 1;
  num_pages_ = c.batch * max_pages + (is_paged || c.has_batch_index ? 2 : 0);
  std::vector<std::int32_t> order(static_cast<std::size_t>(num_pages_));
  for (std::size_t n = 0; n < order.size(); ++n) order[n] = static_cast<std::int32_t>(n);
  if (is_paged || c.has_batch_index) {
    for (std::size_t n = order.size(); n > 1; --n) {
      std::swap(order[n - 1],
                order[static_cast<std::size_t>(random_.Below(static_cast<std::int64_t>(n)))]);
    }
  }
  order.resize(static_cast<std::size_t>(c.batch * max_pages));
  if (!is_paged) {
    index_ = OwnedTensor::Indices(order);
    if (c.has_batch_index) args.cache_batch_index = &index_->abi;
    return;
  }
  table_.emplace(kI32, std::vector<std::int64_t>{c.batch, max_pages});
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const std::int64_t needed = (c.TotalKeys(b) + page_slots_ - 1) / page_slots_;
    for (std::int64_t n = 0; n < max_pages; ++n) {
      const std::int64_t at = b * max_pages + n;
      // Entries past the need lie far outside the pool.
      table_->data<std::int32_t>()[at] =
          n < needed ? order[static_cast<std::size_t>(at)] : 0x7FFFFFF0;
    }
  }
  paging_.block_table = &table_->abi;
  args.paging = &paging_;
}

void DecodeInstance::FillCache() {
  const DecodeCase& c = case_;
  const heed_dtype_t dtype = c.IsQuantised() ? kU8 : ElementToAbi(c.element);
  for (const bool is_key : {true, false}) {
    const std::int64_t dim = is_key ? c.head_dim : c.head_dim_v;
    const std::int64_t groups = is_key ? c.k_groups : c.v_groups;
    const std::int64_t elems = c.PayloadElems(dim);
    OwnedTensor cache = MakeCache(elems, dtype);
    OwnedTensor scales(kF32, {num_pages_, page_slots_, c.num_kv_heads, groups}, kPoison);
    const std::size_t elem_bytes = c.IsQuantised() ? 1 : ElementBytes(c.element);
    for (std::int64_t b = 0; b < c.batch; ++b) {
      const std::int64_t first = c.leftpad.empty() ? 0 : c.leftpad[static_cast<std::size_t>(b)];
      for (std::int64_t token = first; token < c.lengths[static_cast<std::size_t>(b)]; ++token) {
        const std::int64_t page =
            c.page_slots > 0
                ? table_->data<std::int32_t>()[b * table_->shape[1] + token / page_slots_]
                : index_->data<std::int32_t>()[b];
        const std::int64_t slot = c.page_slots > 0 ? token % page_slots_ : token;
        for (std::int64_t head = 0; head < c.num_kv_heads; ++head) {
          const auto row_of = [&](std::int64_t row_slot) {
            return cache.data<std::uint8_t>() +
                   static_cast<std::size_t>(page * cache.strides[0] + row_slot * cache.strides[1] +
                                            head * cache.strides[2]) *
                       elem_bytes;
          };
          std::uint8_t* row = row_of(slot);
          float* scale =
              scales.data<float>() + ((page * page_slots_ + slot) * c.num_kv_heads + head) * groups;
          const double limit = c.format == HEED_KV_INT8       ? 127
                               : c.format == HEED_KV_FP8_E4M3 ? 448
                                                              : 8;
          for (std::int64_t g = 0; c.HasScales() && g < groups; ++g) {
            scale[g] = static_cast<float>((0.2 + 2.0 * random_.Uniform()) / limit);
          }
          double norm = 0.0;
          const auto note = [&](double value, double largest) {
            norm += value * value;
            double& most = is_key ? max_abs_k_ : max_abs_v_;
            if (!is_key) most = std::max(most, largest);
          };
          double block_scale = 0.0;
          for (std::int64_t d = 0; d < dim; ++d) {
            const int byte = static_cast<int>(random_.Below(256));
            const double s = c.HasScales() ? scale[d / (dim / groups)] : 0.0;
            switch (c.format) {
              case HEED_KV_PLAIN: {
                const double value =
                    RoundToElement(c.element, std::clamp(random_.Normal(), -4.0, 4.0));
                StoreElement(c.element, row + static_cast<std::size_t>(d) * elem_bytes, value);
                note(value, std::abs(value));
                break;
              }
              case HEED_KV_INT8: {
                std::uint8_t* at = row + d;
                if (c.layout == HEED_KV_LAYOUT_INTERLEAVED) {
                  const std::int64_t position = d / 4 * 64 + slot % 16 * 4 + d % 4;
                  at = row_of(slot / 16 * 16 + position / elems) + position % elems;
                }
                *at = static_cast<std::uint8_t>(byte);
                note(s * static_cast<std::int8_t>(byte), s * 128);
                break;
              }
              case HEED_KV_FP8_E4M3: {
                const int finite = (byte & 0x7F) == 0x7F ? byte ^ 1 : byte;
                row[d] = static_cast<std::uint8_t>(finite);
                note(s * Fp8Number(finite), s * 448);
                break;
              }
              case HEED_KV_INT4: {
                const int nibble = byte & 0xF;
                row[d / 2] = static_cast<std::uint8_t>(
                    d % 2 == 0 ? nibble | (row[d / 2] & 0xF0) : (row[d / 2] & 0xF) | nibble << 4);
                note(s * (nibble < 8 ? nibble : nibble - 16), s * 8);
                break;
              }
              default: {
                const bool is_q8 = c.format == HEED_KV_Q8_0;
                std::uint8_t* block = row + d / 32 * (is_q8 ? 34 : 18);
                if (d % 32 == 0) {
                  block_scale = RoundToElement(Element::kF16,
                                               (0.2 + 2.0 * random_.Uniform()) / (is_q8 ? 127 : 8));
                  Put16(block, Element::kF16, block_scale);
                }
                if (is_q8) {
                  block[2 + d % 32] = static_cast<std::uint8_t>(byte);
                  note(block_scale * static_cast<std::int8_t>(byte), block_scale * 128);
                } else {
                  std::uint8_t& pair = block[2 + d % 16];
                  const int nibble = byte & 0xF;
                  pair = static_cast<std::uint8_t>(d % 32 < 16 ? (pair & 0xF0) | nibble
                                                               : (pair & 0xF) | nibble << 4);
                  note(block_scale * (nibble - 8), block_scale * 8);
                }
              }
            }
          }
          if (is_key) max_abs_k_ = std::max(max_abs_k_, std::sqrt(norm));
        }
      }
    }
    (is_key ? k_before_ : v_before_) = cache.bytes();
    (is_key ? k_scales_before_ : v_scales_before_) = scales.bytes();
    (is_key ? k_ : v_) = std::move(cache);
    if (c.HasScales()) (is_key ? k_scales_ : v_scales_) = std::move(scales);
  }
  quant_.format = c.format;
  quant_.layout = c.layout;
  if (c.HasScales()) {
    quant_.k_scales = &k_scales_->abi;
    quant_.v_scales = &v_scales_->abi;
  }
  args.quant = &quant_;
}

void DecodeInstance::FillScore() {
  const DecodeCase& c = case_;
  score_.causal = c.causal;
  score_.alignment = c.alignment;
  score_.window_left = c.window_left;
  score_.window_right = c.causal == HEED_CAUSAL_ON ? -1 : c.window_right;
  scale_ = c.scale != 0.0 ? c.scale : 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  score_.scale = &scale_;
  score_.softcap = c.softcap;
  score_.dropout_p = c.dropout;
  score_.dropout_seed = c.index;
  const std::int64_t keys = std::max<std::int64_t>(1, c.LongestKeys());
  if (c.has_alibi) {
    slopes_.emplace(kF32, std::vector<std::int64_t>{c.num_q_heads()});
    for (std::int64_t h = 0; h < c.num_q_heads(); ++h) {
      slopes_->data<float>()[h] = static_cast<float>(random_.Uniform() * 0.1);
    }
    score_.alibi_slopes = &slopes_->abi;
  }
  if (c.has_bias) {
    bias_ = Numbers({c.num_q_heads(), c.new_tokens, keys}, 1.0);
    score_.bias = &bias_->abi;
  }
  if (c.has_mask) {
    mask_.emplace(kU8, std::vector<std::int64_t>{c.batch, 1, c.new_tokens, keys});
    for (std::int64_t i = 0; i < c.batch * c.new_tokens * keys; ++i) {
      mask_->data<std::uint8_t>()[i] = random_.Chance(0.7) ? 1 : 0;
    }
    score_.mask = &mask_->abi;
  }
  if (c.has_sinks) {
    sinks_.emplace(kF32, std::vector<std::int64_t>{c.num_q_heads()});
    for (std::int64_t h = 0; h < c.num_q_heads(); ++h) {
      sinks_->data<float>()[h] = static_cast<float>(random_.Normal());
    }
    score_.sinks = &sinks_->abi;
  }
  args.score = &score_;
  if (c.rotary_pairs == 0) return;
  const bool is_fp32 = random_.Chance(0.5);
  const Element element = is_fp32 ? Element::kF32 : c.element;
  cos_.emplace(ElementToAbi(element), std::vector<std::int64_t>{keys, c.rotary_pairs});
  sin_.emplace(ElementToAbi(element), std::vector<std::int64_t>{keys, c.rotary_pairs});
  for (std::int64_t i = 0; i < keys * c.rotary_pairs; ++i) {
    const double angle = random_.Uniform() * 6.283185307179586;
    const std::size_t at = static_cast<std::size_t>(i) * ElementBytes(element);
    StoreElement(element, cos_->data<std::uint8_t>() + at, std::cos(angle));
    StoreElement(element, sin_->data<std::uint8_t>() + at, std::sin(angle));
  }
  args.rotary_cos = &cos_->abi;
  args.rotary_sin = &sin_->abi;
  args.rotary_layout = c.rotary_layout;
}

void DecodeInstance::Restore() {
  const auto restore = [](std::optional<OwnedTensor>& tensor,
                          const std::vector<std::uint64_t>& before) {
    if (tensor) std::memcpy(tensor->data<std::uint64_t>(), before.data(), before.size() * 8);
  };
  restore(k_, k_before_);
  restore(v_, v_before_);
  restore(k_scales_, k_scales_before_);
  restore(v_scales_, v_scales_before_);
  for (std::optional<OwnedTensor>* output : {&o_, &lse_}) {
    std::memset((*output)->data<std::uint8_t>(), kPoison, (*output)->bytes().size() * 8);
  }
}

heed_status_t DecodeInstance::Run(const DecodeRun& run) {
  Restore();
  exec.backend = run.backend;
  exec.kernel = run.kernel.empty() ? nullptr : run.kernel.c_str();
  exec.num_threads = run.num_threads;
  exec.parallel_for = run.parallel_for;
  return heed_decode(&args);
}

double DecodeInstance::Output(std::int64_t b, std::int64_t token, std::int64_t head,
                              std::int64_t d) {
  const std::int64_t at =
      ((b * case_.new_tokens + token) * case_.num_q_heads() + head) * case_.head_dim_v + d;
  return LoadElement(case_.element, o_->data<std::uint8_t>() +
                                        static_cast<std::size_t>(at) * ElementBytes(case_.element));
}

float DecodeInstance::Lse(std::int64_t b, std::int64_t token, std::int64_t head) {
  return lse_->data<float>()[(b * case_.num_q_heads() + head) * case_.new_tokens + token];
}

std::vector<std::uint64_t> DecodeInstance::CacheBytes() const {
  std::vector<std::uint64_t> all = k_->bytes();
  for (const std::optional<OwnedTensor>* tensor : {&v_, &k_scales_, &v_scales_}) {
    if (!*tensor) continue;
    const std::vector<std::uint64_t> bytes = (*tensor)->bytes();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

std::vector<std::uint64_t> DecodeInstance::ResultBytes() const {
  std::vector<std::uint64_t> all = CacheBytes();
  for (const std::optional<OwnedTensor>* tensor : {&o_, &lse_}) {
    const std::vector<std::uint64_t> bytes = (*tensor)->bytes();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

DecodeInstance::Bounds DecodeInstance::ComputeBounds(DecodeRounding rounding) {
  const DecodeCase& c = case_;
  const auto largest_norm = [&](OwnedTensor& tensor, std::int64_t dim, double* largest) {
    double most = 0.0;
    std::int64_t rows = 1;
    for (std::size_t axis = 0; axis + 1 < tensor.shape.size(); ++axis) rows *= tensor.shape[axis];
    for (std::int64_t row = 0; row < rows; ++row) {
      double norm = 0.0;
      for (std::int64_t d = 0; d < dim; ++d) {
        const double value = LoadElement(
            c.element, tensor.data<std::uint8_t>() +
                           static_cast<std::size_t>(row * dim + d) * ElementBytes(c.element));
        norm += value * value;
        *largest = std::max(*largest, std::abs(value));
      }
      most = std::max(most, std::sqrt(norm));
    }
    return most;
  };
  // Angles in 16 bits and quantisation stretch a row by less than this.
  constexpr double kSlack = 1.2;
  double q_largest = 0.0, unused = 0.0, v_largest = max_abs_v_;
  const double q_norm = largest_norm(*q_, c.head_dim, &q_largest) * kSlack;
  double k_norm = max_abs_k_;
  if (c.appends) {
    k_norm = std::max(k_norm, largest_norm(*k_new_, c.head_dim, &unused) * kSlack);
    largest_norm(*v_new_, c.head_dim_v, &v_largest);
  }
  v_largest *= c.format == HEED_KV_Q4_0 || c.format == HEED_KV_INT4 ? 1.3 : 1.02;

  ForwardFacts facts;
  facts.element = c.element;
  facts.rounding = RoundingModel::kRandom;
  facts.head_dim = c.head_dim;
  facts.num_keys = c.LongestKeys();
  facts.scale = scale_;
  facts.softcap = c.softcap;
  facts.max_abs_product = q_norm * k_norm;
  facts.max_abs_added =
      (c.has_bias ? 4.0 : 0.0) + (c.has_alibi ? 0.1 * static_cast<double>(c.LongestKeys()) : 0.0);
  facts.max_abs_sink = c.has_sinks ? 6.0 : 0.0;
  facts.max_abs_value = v_largest;
  facts.keep_scale = 1.0 / (1.0 - c.dropout);
  facts.max_abs_lse = std::abs(scale_) * facts.max_abs_product + facts.max_abs_added +
                      facts.max_abs_sink + std::log(1.0 + static_cast<double>(facts.num_keys));
  // P is not rounded: only the terms of fp32 storage count, and that of o, in both results.
  if (rounding == DecodeRounding::kFp32) facts.element = Element::kF32;
  const ForwardTolerance tolerance = ComputeForwardTolerance(facts);
  Bounds bounds;
  bounds.output = tolerance.output_abs +
                  2 * UnitRoundoff(c.element) * v_largest * facts.keep_scale +
                  2 * HalfSubnormalStep(c.element);
  bounds.lse = tolerance.lse_abs;
  if (rounding == DecodeRounding::kTensorCores && c.rotary_pairs > 0) {
    // A rotated query is rounded once more.
    const double score = std::abs(scale_) * UnitRoundoff(c.element) * q_norm * k_norm;
    bounds.lse += score;
    bounds.output += std::expm1(2 * score) * v_largest;
  }
  if (c.layout != HEED_KV_LAYOUT_INTERLEAVED) return bounds;
  // docs/numerics.md, "int8 decode": q and weights as 16-bit words.
  const double score = std::abs(scale_) * std::sqrt(static_cast<double>(c.head_dim)) * k_norm *
                       q_largest * kSlack / (2 * 32639.0);
  const double weights = SumGrowth(128, RoundingModel::kRandom) / (2 * 32639.0);
  bounds.lse += score;
  bounds.output += std::expm1(2 * score) * v_largest + weights * v_largest;
  return bounds;
}

DecodeResults CollectResults(DecodeInstance& instance) {
  const DecodeCase& c = instance.decode_case();
  DecodeResults results;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t token = 0; token < c.new_tokens; ++token) {
      for (std::int64_t head = 0; head < c.num_q_heads(); ++head) {
        results.lse.push_back(instance.Lse(b, token, head));
        for (std::int64_t d = 0; d < c.head_dim_v; ++d) {
          results.o.push_back(instance.Output(b, token, head, d));
        }
      }
    }
  }
  results.cache = instance.CacheBytes();
  return results;
}

namespace {

bool CanRun(const KernelRow& row) {
  DecodeCase small;
  small.lengths = {1};
  DecodeInstance instance(small);
  const std::string id(row.id);
  instance.exec.kernel = id.c_str();
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  return heed_plan(HEED_OP_DECODE, &instance.args, &plan) == HEED_OK && plan.kernel_id == id;
}

}  // namespace

std::vector<std::string> DecodeRowsHere() {
  std::vector<std::string> rows;
  for (const KernelRow& row : AllKernelRows()) {
    const bool is_tested = row.op == "Decode" && row.backend == "Cpu" && TestsRow(row.id);
    if (is_tested && CanRun(row)) rows.emplace_back(row.id);
  }
  return rows;
}

}  // namespace heed::test
