// Every kernel that can run here against a double-precision reference, one feature at a time and
// in combination.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/status.h"
#include "cpu/forward_fixture.h"
#include "cpu/kernels_here.h"

namespace heed::test {
namespace {

class CpuForward : public testing::TestWithParam<NamedKernel> {
 protected:
  void Check(Spec spec) {
    const NamedKernel& named = GetParam();
    spec.dtype = named.dtype;
    Fixture fixture(spec);
    fixture.Run(*named.kernel);
    EXPECT_EQ(fixture.Mismatch(named.p_bits), "");
  }
};

std::string TestName(const testing::TestParamInfo<NamedKernel>& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (c == '.') c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Kernels, CpuForward, testing::ValuesIn(KernelsHere()), TestName);

constexpr device::WindowRule kCausal{-1, 0, device::Alignment::kBottomRight};
constexpr device::WindowRule kCausalTopLeft{-1, 0, device::Alignment::kTopLeft};

TEST_P(CpuForward, Lengths) {
  for (const std::int64_t kv : {1, 2, 3, 7, 8, 127, 128, 129, 300}) {
    for (const std::int64_t q : {1, 5, 8, 12, 24, 48, 49, 100}) {
      SCOPED_TRACE(testing::Message() << "q " << q << " kv " << kv);
      Check({.q_slots = {q}, .kv_slots = {kv}});
    }
  }
}

TEST_P(CpuForward, HeadDims) {
  for (const std::int64_t d : {1, 2, 3, 7, 8, 15, 16, 17, 31, 64, 80, 129, 256, 576}) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    const double scale = 1.0 / std::sqrt(static_cast<double>(d));
    Check({.q_slots = {9}, .kv_slots = {37}, .head_dim = d, .head_dim_v = d, .scale = scale});
    Check({.q_slots = {30}, .kv_slots = {37}, .head_dim = d, .head_dim_v = 13, .scale = scale});
    Check({.q_slots = {30}, .kv_slots = {37}, .head_dim = 13, .head_dim_v = d});
  }
}

TEST_P(CpuForward, CausalBothAlignments) {
  for (const device::WindowRule& rule : {kCausal, kCausalTopLeft}) {
    for (const std::int64_t q : {1, 30, 150, 200}) {
      for (const std::int64_t kv : {1, 31, 150, 290}) {
        SCOPED_TRACE(testing::Message() << "q " << q << " kv " << kv);
        Check({.q_slots = {q}, .kv_slots = {kv}, .window = rule});
      }
    }
  }
}

TEST_P(CpuForward, Windows) {
  for (const auto alignment : {device::Alignment::kBottomRight, device::Alignment::kTopLeft}) {
    for (const std::int64_t left : {-1, 0, 1, 17, 200}) {
      for (const std::int64_t right : {-1, 0, 3, 130}) {
        SCOPED_TRACE(testing::Message() << "left " << left << " right " << right);
        const device::WindowRule rule{left, right, alignment};
        Check({.q_slots = {90}, .kv_slots = {270}, .head_dim = 8, .head_dim_v = 9, .window = rule});
        Check({.q_slots = {270}, .kv_slots = {90}, .head_dim = 8, .head_dim_v = 9, .window = rule});
      }
    }
  }
}

TEST_P(CpuForward, GroupedHeads) {
  for (const std::int64_t group : {1, 2, 3, 8, 25}) {
    SCOPED_TRACE(testing::Message() << "group " << group);
    Check({.q_slots = {21, 21},
           .kv_slots = {140, 140},
           .num_q_heads = 2 * group,
           .num_kv_heads = 2,
           .window = kCausal});
  }
}

TEST_P(CpuForward, UsedLengthsDense) {
  Check({.q_slots = {50, 50, 50, 50},
         .q_len = {50, 13, 0, 1},
         .kv_slots = {140, 140, 140, 140},
         .kv_len = {3, 129, 77, 0},
         .num_q_heads = 2,
         .window = kCausal});
}

TEST_P(CpuForward, Packed) {
  for (const device::WindowRule& rule : {device::WindowRule{}, kCausal, kCausalTopLeft}) {
    Check({.q_slots = {17, 0, 64, 1},
           .q_len = {17, 0, 33, 1},
           .kv_slots = {5, 9, 131, 0},
           .kv_len = {5, 9, 130, 0},
           .num_q_heads = 3,
           .packed = true,
           .window = rule});
  }
}

TEST_P(CpuForward, Paged) {
  for (const std::int64_t page_slots : {1, 3, 16, 100, 128, 256}) {
    SCOPED_TRACE(testing::Message() << "page_slots " << page_slots);
    Check({.q_slots = {40, 3, 60},
           .kv_slots = {300, 129, 20},
           .num_q_heads = 4,
           .num_kv_heads = 2,
           .packed = true,
           .page_slots = page_slots,
           .window = {50, 0, device::Alignment::kBottomRight}});
  }
}

TEST_P(CpuForward, StridedRows) {
  Check({.q_slots = {30, 30},
         .kv_slots = {140, 140},
         .num_q_heads = 4,
         .num_kv_heads = 2,
         .head_dim = 20,
         .head_dim_v = 12,
         .gap_elems = 5});
}

TEST_P(CpuForward, Scales) {
  for (const double scale : {0.0, -0.3, 1.0, 1e-30, -1e-300}) {
    SCOPED_TRACE(testing::Message() << "scale " << scale);
    Check({.kv_slots = {140}, .scale = scale});
    Check({.kv_slots = {140}, .window = kCausal, .scale = scale, .softcap = 2.0, .alibi = true});
  }
}

TEST_P(CpuForward, Softcap) {
  for (const double cap : {0.5, 5.0, 50.0}) {
    Check({.kv_slots = {140}, .scale = 1.0, .softcap = cap});
    Check({.q_slots = {140}, .kv_slots = {140}, .window = kCausal, .softcap = cap});
  }
}

TEST_P(CpuForward, AlibiBiasMask) {
  const std::vector<std::function<void(Spec*)>> features = {
      [](Spec* s) { s->alibi = true; },
      [](Spec* s) { s->bias = true; },
      [](Spec* s) { s->bias = s->bias_is_16_bit = true; },
      [](Spec* s) { s->bias = s->bias_hides = true; },
      [](Spec* s) { s->mask = true; },
      [](Spec* s) { s->mask = true, s->masked_keys = 60; },
      [](Spec* s) { s->mask = true, s->masked_keys = 135; },
      [](Spec* s) { s->mask = true, s->masked_keys = 150; },  // every row is empty
      [](Spec* s) { s->mask = s->bias = s->alibi = s->sinks = true, s->softcap = 3.0; },
  };
  for (std::size_t i = 0; i < features.size(); ++i) {
    for (const device::WindowRule& rule : {device::WindowRule{}, kCausal}) {
      SCOPED_TRACE(testing::Message() << "feature " << i);
      Spec spec{.q_slots = {37, 37},
                .kv_slots = {150, 150},
                .kv_len = {150, 141},
                .num_q_heads = 4,
                .num_kv_heads = 2,
                .window = rule};
      features[i](&spec);
      if (spec.masked_keys == 150) spec.kv_len = {};
      Check(spec);
    }
  }
}

TEST_P(CpuForward, Sinks) {
  Check({.q_slots = {60}, .kv_slots = {30}, .num_q_heads = 4, .window = kCausal, .sinks = true});
  Check({.q_slots = {5}, .kv_slots = {0}, .num_q_heads = 4, .sinks = true});
}

TEST_P(CpuForward, Dropout) {
  for (const std::uint32_t threshold : {1u, 6554u, 32768u, 65535u}) {
    SCOPED_TRACE(testing::Message() << "threshold " << threshold);
    Check({.q_slots = {37, 37},
           .kv_slots = {150, 150},
           .num_q_heads = 4,
           .num_kv_heads = 2,
           .window = kCausal,
           .drop_threshold = threshold});
  }
  Check({.kv_slots = {150}, .softcap = 2.0, .bias = true, .drop_threshold = 20000});
}

TEST_P(CpuForward, NoKeysAndNoQueries) {
  Check({.q_slots = {5}, .kv_slots = {0}});
  Check({.q_slots = {0}, .kv_slots = {5}});
}

// Scores far apart: most probabilities underflow, the maximum moves often.
TEST_P(CpuForward, LargeScores) {
  const int digits_lost = 6;  // scores up to about 2^8 carry an absolute error of 2^-16 or so
  const NamedKernel& named = GetParam();
  Spec spec{.dtype = named.dtype, .q_slots = {50}, .kv_slots = {400}, .score_magnitude = 20.0f};
  Fixture fixture(spec);
  fixture.Run(*named.kernel);
  EXPECT_EQ(fixture.Mismatch(std::min(named.p_bits, 18 - digits_lost)), "");
}

// Sums of weights are as exact as in fp32, whatever the weights are rounded to.
TEST_P(CpuForward, LseOfOneKeyIsItsScore) {
  Fixture fixture({.dtype = GetParam().dtype, .kv_slots = {1}, .scale = 0.0});
  fixture.Run(*GetParam().kernel);
  for (const float lse : fixture.lse()) EXPECT_NEAR(lse, 0.0f, 1e-7f);
}

// Maxima that rise from block to block by more and less than what weights may pass 1 by, for some
// rows of a tile and not for others, in whole blocks and in the last part of one.
TEST_P(CpuForward, RisingScores) {
  const int digits_lost = 8;
  const NamedKernel& named = GetParam();
  for (const bool is_causal : {false, true}) {
    Spec spec{.dtype = named.dtype,
              .q_slots = {100},
              .kv_slots = {389},
              .head_dim = 40,
              .head_dim_v = 24,
              .window = is_causal ? kCausal : device::WindowRule{},
              .key_growth = 0.1f};
    Fixture fixture(spec);
    fixture.Run(*named.kernel);
    EXPECT_EQ(fixture.Mismatch(std::min(named.p_bits, 18 - digits_lost)), "");
  }
}

// One value in each format.
struct Bits {
  float f32;
  std::uint16_t f16, bf16;
};
constexpr Bits kInfinite{HUGE_VALF, 0x7C00, 0x7F80}, kFortyEight{48.0f, 0x5200, 0x4240};

void SetRow(const core::RowsView& rows, std::int64_t row, std::int64_t num_elems, Bits value) {
  for (std::int64_t d = 0; d < num_elems; ++d) {
    const std::int64_t at = rows.OffsetElems(0, row, 0) + d;
    if (rows.dtype == core::DType::kF32) {
      static_cast<float*>(rows.data)[at] = value.f32;
    } else {
      static_cast<std::uint16_t*>(rows.data)[at] =
          rows.dtype == core::DType::kF16 ? value.f16 : value.bf16;
    }
  }
}

TEST_P(CpuForward, BitsDoNotDependOnTheOtherRowsOfATile) {
  constexpr std::int64_t kTokens = 60, kDims = 32;
  Fixture fixture({.dtype = GetParam().dtype, .q_slots = {kTokens}, .kv_slots = {300}});
  const core::ForwardProblem& problem = fixture.problem();
  fixture.Run(*GetParam().kernel);
  const std::vector<std::uint8_t> before = fixture.o_bytes();
  // Scores of other rows in the hundreds: their maxima rise where those of the rest do not.
  for (std::int64_t i = 1; i < kTokens; i += 2) SetRow(problem.q, i, kDims, kFortyEight);
  fixture.Run(*GetParam().kernel);
  std::int64_t num_changed = 0;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    for (std::int64_t d = 0; d < kDims; ++d) {
      const std::int64_t at = problem.o.OffsetElems(0, i, 0) + d;
      const double was = ReadElement(problem.o.dtype, before.data(), at);
      const double is = ReadElement(problem.o.dtype, problem.o.data, at);
      if (i % 2 == 0) {
        ASSERT_EQ(is, was) << "token " << i << " d " << d;
      } else {
        num_changed += is != was;
      }
    }
  }
  EXPECT_GT(num_changed, kTokens / 2 * kDims / 2);
}

// Token i sees key i + 1 alone, and tiles of 12, 24 or 48 rows meet before token 432: between the
// two keys of one pair. What is infinite on one side must not reach the other.
TEST_P(CpuForward, InfiniteValueOfANeighbouringTile) {
  constexpr std::int64_t kTokens = 480, kFirstToken = 432, kDims = 32;
  for (const std::int64_t bad_key : {kFirstToken, kFirstToken + 1}) {
    Fixture fixture({.dtype = GetParam().dtype,
                     .q_slots = {kTokens},
                     .kv_slots = {kTokens + 1},
                     .window = {0, 0, device::Alignment::kBottomRight}});
    const core::ForwardProblem& problem = fixture.problem();
    SetRow(problem.v, bad_key, kDims, kInfinite);
    fixture.Run(*GetParam().kernel);
    const bool is_first_side = bad_key == kFirstToken + 1;
    for (std::int64_t i = is_first_side ? 0 : kFirstToken;
         i < (is_first_side ? kFirstToken : kTokens); ++i) {
      for (std::int64_t d = 0; d < kDims; ++d) {
        const std::int64_t o_at = problem.o.OffsetElems(0, i, 0) + d;
        const std::int64_t v_at = problem.v.OffsetElems(0, i + 1, 0) + d;
        ASSERT_EQ(ReadElement(problem.o.dtype, problem.o.data, o_at),
                  ReadElement(problem.v.dtype, problem.v.data, v_at))
            << "key " << bad_key << " token " << i << " d " << d;
      }
    }
  }
}

TEST_P(CpuForward, SameBitsForEveryThreadCount) {
  const NamedKernel& named = GetParam();
  Spec spec{.dtype = named.dtype,
            .q_slots = {300, 300, 300},
            .q_len = {300, 200, 7},
            .kv_slots = {260, 260, 260},
            .num_q_heads = 4,
            .num_kv_heads = 2,
            .head_dim = 24,
            .window = kCausal};
  Fixture fixture(spec);
  fixture.Run(*named.kernel, 1);
  const std::vector<std::uint8_t> o = fixture.o_bytes();
  const std::vector<float> lse = fixture.lse();
  EXPECT_EQ(fixture.Mismatch(named.p_bits), "");
  for (const std::int64_t workers : {2, 3, 16}) {
    fixture.Run(*named.kernel, workers);
    EXPECT_EQ(fixture.o_bytes(), o) << workers;
    EXPECT_EQ(fixture.lse(), lse) << workers;
  }
}

TEST(CpuForwardAccuracy, Fp32FrobeniusErrorOnNormalData) {
  for (const NamedKernel& named : KernelsHere()) {
    if (named.dtype != core::DType::kF32) continue;
    Spec spec{.q_slots = {48},
              .kv_slots = {4096},
              .head_dim = 128,
              .head_dim_v = 128,
              .scale = 0.08838834764831845};
    Fixture fixture(spec);
    fixture.Run(*named.kernel);
    EXPECT_LE(fixture.FrobeniusError(), 5e-7) << named.name;
    RecordProperty(named.name, core::Format("%.3g", fixture.FrobeniusError()));
  }
}

}  // namespace
}  // namespace heed::test
