// Different ways to state the same attention give the same result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/problem.h"
#include "reference/attention.h"
#include "reference/reference.h"

namespace heed::reference {
namespace {

constexpr double kRounding = 1e-13;

Spec FullSpec() {
  Spec spec;
  spec.batch = 2;
  spec.num_q_heads = 4;
  spec.num_kv_heads = 2;
  spec.q_len = 6;
  spec.kv_len = 9;
  spec.head_dim = 4;
  spec.head_dim_v = 3;
  spec.has_alibi = true;
  spec.has_sinks = true;
  spec.softcap = 3.0;
  return spec;
}

void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t n = 0; n < actual.size(); ++n) {
    if (actual[n] == expected[n]) continue;  // infinities
    ASSERT_NEAR(actual[n], expected[n], kRounding) << n;
  }
}

TEST(Invariant, ChunkedPrefillEqualsTheFullRun) {
  Spec spec = FullSpec();
  spec.batch = 1;
  spec.num_q_heads = spec.num_kv_heads = 1;
  spec.q_len = spec.kv_len = 9;
  spec.window = {4, 0, device::Alignment::kBottomRight};
  Attention full(spec);
  full.RunForward();
  constexpr std::int64_t kChunk = 3;
  for (std::int64_t begin = 0; begin < 9; begin += kChunk) {
    Spec part_spec = spec;
    part_spec.q_len = kChunk;
    part_spec.kv_len = begin + kChunk;
    Attention part(part_spec);
    part.alibi_slopes = full.alibi_slopes;
    part.sinks = full.sinks;
    std::copy_n(full.q.begin() + begin * 4, kChunk * 4, part.q.begin());
    std::copy_n(full.k.begin(), part.k.size(), part.k.begin());
    std::copy_n(full.v.begin(), part.v.size(), part.v.begin());
    part.RunForward();
    ExpectNear(part.o, {full.o.begin() + begin * 3, full.o.begin() + (begin + kChunk) * 3});
    ExpectNear(part.lse, {full.lse.begin() + begin, full.lse.begin() + begin + kChunk});
  }
}

TEST(Invariant, PackedEqualsDense) {
  Spec spec = FullSpec();
  spec.window.right = 0;
  spec.dropout_p = 0.2;
  Attention dense(spec);
  spec.cu_seqlens_q = {0, 6, 12};
  spec.cu_seqlens_kv = {0, 9, 18};
  Attention packed(spec);  // same storage order, so the same random tensors
  ASSERT_EQ(dense.q, packed.q);
  for (Attention* attention : {&dense, &packed}) attention->RunForward();
  EXPECT_EQ(dense.o, packed.o);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t head = 0; head < 4; ++head) {
      for (std::int64_t i = 0; i < 6; ++i) {
        const std::size_t n = packed.LseIndex(b, head, i);
        EXPECT_EQ(packed.lse[n], dense.lse[dense.LseIndex(b, head, i)]);
        packed.d_lse[n] = dense.d_lse[dense.LseIndex(b, head, i)];
      }
    }
  }
  for (Attention* attention : {&dense, &packed}) attention->RunBackward();
  EXPECT_EQ(dense.dq, packed.dq);
  EXPECT_EQ(dense.dk, packed.dk);
  EXPECT_EQ(dense.dv, packed.dv);
}

TEST(Invariant, PagedEqualsDenseWhateverFreeSlotsHold) {
  Spec spec = FullSpec();
  spec.seqused_kv = {9, 4};
  Attention dense(spec);
  spec.page_slots = 4;
  Attention paged(spec);
  paged.q = dense.q;
  std::fill(paged.k.begin(), paged.k.end(), std::nan(""));
  std::fill(paged.v.begin(), paged.v.end(), std::nan(""));
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t j = 0; j < spec.seqused_kv[b]; ++j) {
        for (std::int64_t d = 0; d < 4; ++d) {
          paged.k[paged.KvIndex(b, j, head, d, 4)] = dense.k[dense.KvIndex(b, j, head, d, 4)];
        }
        for (std::int64_t d = 0; d < 3; ++d) {
          paged.v[paged.KvIndex(b, j, head, d, 3)] = dense.v[dense.KvIndex(b, j, head, d, 3)];
        }
      }
    }
  }
  paged.sinks = dense.sinks;
  // 4 of the second sequence's tokens fill one page; its other entries are never read.
  paged.block_table[4] = paged.block_table[5] = -1000000;
  for (Attention* attention : {&dense, &paged}) attention->RunForward();
  EXPECT_EQ(dense.o, paged.o);
  EXPECT_EQ(dense.lse, paged.lse);
}

TEST(Invariant, GroupedHeadsEqualRepeatedKeyHeads) {
  Spec spec = FullSpec();
  Attention grouped(spec);
  spec.num_kv_heads = 4;
  Attention repeated(spec);
  repeated.q = grouped.q;
  repeated.sinks = grouped.sinks;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t j = 0; j < 9; ++j) {
      for (std::int64_t head = 0; head < 4; ++head) {
        std::copy_n(&grouped.k[grouped.KvIndex(b, j, head / 2, 0, 4)], 4,
                    &repeated.k[repeated.KvIndex(b, j, head, 0, 4)]);
        std::copy_n(&grouped.v[grouped.KvIndex(b, j, head / 2, 0, 3)], 3,
                    &repeated.v[repeated.KvIndex(b, j, head, 0, 3)]);
      }
    }
  }
  for (Attention* attention : {&grouped, &repeated}) attention->RunForward();
  EXPECT_EQ(grouped.o, repeated.o);
  EXPECT_EQ(grouped.lse, repeated.lse);
}

TEST(Invariant, KeyOrderDoesNotMatterWithoutPositions) {
  Spec spec = FullSpec();
  spec.batch = 1;
  spec.has_alibi = false;
  Attention ordered(spec);
  Attention reversed(spec);
  for (std::int64_t j = 0; j < 9; ++j) {
    std::copy_n(&ordered.k[ordered.KvIndex(0, j, 0, 0, 4)], 2 * 4,
                &reversed.k[reversed.KvIndex(0, 8 - j, 0, 0, 4)]);
    std::copy_n(&ordered.v[ordered.KvIndex(0, j, 0, 0, 3)], 2 * 3,
                &reversed.v[reversed.KvIndex(0, 8 - j, 0, 0, 3)]);
  }
  for (Attention* attention : {&ordered, &reversed}) attention->RunForward();
  ExpectNear(reversed.o, ordered.o);
  ExpectNear(reversed.lse, ordered.lse);
}

TEST(Invariant, ASinkIsAKeyWithValueZero) {
  Spec spec = FullSpec();
  spec.batch = 1;
  spec.num_q_heads = spec.num_kv_heads = 1;
  spec.has_alibi = false;
  spec.softcap = 0.0;
  Attention with_sink(spec);
  spec.has_sinks = false;
  spec.kv_len = 10;
  spec.has_bias = true;
  spec.bias_axes = {false, false, false, true};
  Attention with_key(spec);
  with_key.q = with_sink.q;
  std::fill(with_key.k.begin(), with_key.k.end(), 0.0);
  std::fill(with_key.v.begin(), with_key.v.end(), 0.0);
  std::copy(with_sink.k.begin(), with_sink.k.end(), with_key.k.begin());
  std::copy(with_sink.v.begin(), with_sink.v.end(), with_key.v.begin());
  std::fill(with_key.bias.begin(), with_key.bias.end(), 0.0);
  with_key.bias[9] = with_sink.sinks[0];
  for (Attention* attention : {&with_sink, &with_key}) attention->RunForward();
  ExpectNear(with_sink.o, with_key.o);
  ExpectNear(with_sink.lse, with_key.lse);
}

// Key ranges [0, 4), [4, 4) (empty), [4, 9) computed apart, selected by a mask, then merged.
TEST(Invariant, CombinedPartsEqualTheWhole) {
  Spec spec = FullSpec();
  Attention whole(spec);
  whole.RunForward();

  spec.has_sinks = false;
  spec.has_mask = true;
  std::vector<double> o_parts, lse_parts;
  Attention part(spec);
  part.q = whole.q;
  part.k = whole.k;
  part.v = whole.v;
  const std::int64_t bounds[] = {0, 4, 4, 9};
  for (int p = 0; p < 3; ++p) {
    for (std::size_t n = 0; n < part.mask.size(); ++n) {
      const std::int64_t j = static_cast<std::int64_t>(n) % 9;
      part.mask[n] = bounds[p] <= j && j < bounds[p + 1] ? 1 : 0;
    }
    part.RunForward();
    if (p == 1) std::fill(part.o.begin(), part.o.end(), std::nan(""));  // empty: may be anything
    o_parts.insert(o_parts.end(), part.o.begin(), part.o.end());
    lse_parts.insert(lse_parts.end(), part.lse.begin(), part.lse.end());
  }

  Attention merged(FullSpec());
  const core::ForwardProblem views = merged.MakeForwardProblem();
  core::CombineProblem combine;
  combine.num_parts = 3;
  combine.batch = 2;
  combine.q_len = 6;
  combine.num_q_heads = 4;
  combine.head_dim_v = 3;
  combine.o = combine.o_partial = views.o;
  combine.o_partial.data = o_parts.data();
  combine.o_part_stride_elems = static_cast<std::int64_t>(part.o.size());
  combine.lse = combine.lse_partial = views.lse;
  combine.lse_partial.data = lse_parts.data();
  combine.lse_part_stride_elems = static_cast<std::int64_t>(part.lse.size());
  combine.sinks = {whole.sinks.data(), 0, 1, true};
  ASSERT_TRUE(Combine(combine).ok());
  ExpectNear(merged.o, whole.o);
  ExpectNear(merged.lse, whole.lse);
}

TEST(Combine, OnlyEmptyPartsGiveAnEmptyRow) {
  for (bool has_sinks : {false, true}) {
    std::vector<double> o_parts(2, std::nan("")), lse_parts(2, -INFINITY), o(1), lse(1);
    std::vector<float> sinks = {0.75f};
    core::CombineProblem combine;
    combine.num_parts = 2;
    combine.batch = combine.q_len = combine.num_q_heads = combine.head_dim_v = 1;
    combine.o_partial = {o_parts.data(), core::DType::kF64, 1, 1, 1};
    combine.lse_partial = {lse_parts.data(), core::DType::kF64, 1, 1, 1};
    combine.o_part_stride_elems = combine.lse_part_stride_elems = 1;
    combine.o = {o.data(), core::DType::kF64, 1, 1, 1};
    combine.lse = {lse.data(), core::DType::kF64, 1, 1, 1};
    combine.sinks = {sinks.data(), 0, 1, has_sinks};
    ASSERT_TRUE(Combine(combine).ok());
    EXPECT_EQ(o[0], 0.0);
    EXPECT_EQ(lse[0], has_sinks ? 0.75 : -INFINITY);
  }
}

}  // namespace
}  // namespace heed::reference
