#include "support/plain_backward.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <type_traits>

#include "support/head_rows.h"
#include "support/indexed_table.h"

namespace heed::test {
namespace {

bool InBlockLeftOut(std::int64_t at) { return at >= 16 && at < 32; }

template <class Real>
class PlainBackward {
 public:
  PlainBackward(const BackwardInstance& instance, BackwardFault fault)
      : instance_(instance),
        case_(instance.description().forward),
        fault_(fault),
        scale_log2_(static_cast<Real>(instance.forward().scale()) * kLog2E),
        dq_(instance.dq().shape()),
        dk_(instance.dk().shape()),
        dv_(instance.dv().shape()),
        d_sinks_(Indices{case_.num_q_heads}) {
    if (instance.d_bias() != nullptr) d_bias_ = IndexedTable<Real>(instance.d_bias()->shape());
  }

  void Run() {
    for (std::int64_t b = 0; b < case_.batch; ++b) {
      for (std::int64_t head = 0; head < case_.num_q_heads; ++head) {
        const HeadRows<Real> rows(instance_, b, head);
        if (fault_ == BackwardFault::kGroupHeadsNotSummed) ForgetKeyGradients(rows);
        for (std::int64_t i = 0; i < rows.sequence.q_len; ++i) AddRow(rows, i);
      }
    }
    Store();
  }

 private:
  static constexpr Real kLog2E = std::numbers::log2e_v<Real>;

  struct Row {
    std::int64_t i;
    Real lse_log2;
    Real d_lse;
    Real term;  // delta - d_lse
  };
  struct Score {
    Real log2;
    Real slope;
  };

  Real Round(Real value) const {
    if constexpr (std::is_same_v<Real, double>) return value;
    return static_cast<Real>(RoundToElement(case_.element, value));
  }

  void AddRow(const HeadRows<Real>& rows, std::int64_t i) {
    const Real lse = static_cast<Real>(instance_.forward().Lse(rows.b, rows.head, i));
    if (lse == -INFINITY) {
      if (fault_ == BackwardFault::kHiddenByMultiplying) AddHiddenRow(rows, i);
      return;
    }
    Row row = {i, lse * kLog2E, 0, 0};
    row.d_lse = static_cast<Real>(instance_.LseGradient(rows.b, rows.head, i));
    if (fault_ == BackwardFault::kLseGradientSign) row.d_lse = -row.d_lse;
    const bool sees_any = instance_.forward().SeesAnyKey(rows.b, rows.head, i);
    const Real delta = sees_any ? SequentialDot(rows.o[i], rows.d_o[i], case_.head_dim_v) : Real{0};
    row.term = (fault_ == BackwardFault::kDeltaLeftOut ? Real{0} : delta) - row.d_lse;
    AddSink(rows, row);
    for (std::int64_t j = 0; j < rows.sequence.kv_len; ++j) AddPair(rows, row, j);
  }

  void AddSink(const HeadRows<Real>& rows, Row& row) {
    if (!case_.sinks) return;
    const Real sink_log2 = static_cast<Real>(instance_.forward().Sink(rows.head)) * kLog2E;
    d_sinks_[{rows.head}] -= std::exp2(sink_log2 - row.lse_log2) * row.term;
    if (fault_ != BackwardFault::kSinkLeftOut) return;
    row.lse_log2 = std::log2(std::exp2(row.lse_log2) - std::exp2(sink_log2));
  }

  bool IsVisible(const HeadRows<Real>& rows, std::int64_t i, std::int64_t j) const {
    const ForwardInstance& forward = instance_.forward();
    if (forward.Visible(rows.b, rows.head, i, j)) return true;
    return fault_ == BackwardFault::kMaskOffByOne && j > 0 &&
           forward.Visible(rows.b, rows.head, i, j - 1);
  }

  Score ScoreOf(const HeadRows<Real>& rows, std::int64_t i, std::int64_t j) const {
    const Real product = SequentialDot(rows.q[i], rows.k[j], case_.head_dim);
    Score score = {product * scale_log2_, 1};
    if (case_.softcap > 0.0) {
      const Real cap = static_cast<Real>(case_.softcap);
      const Real bent = std::tanh(product * static_cast<Real>(instance_.forward().scale()) / cap);
      score = {cap * kLog2E * bent, 1 - bent * bent};
      if (fault_ == BackwardFault::kSoftcapSlopeLeftOut) score.slope = 1;
    }
    score.log2 += static_cast<Real>(instance_.AddedScore(rows.b, rows.head, i, j)) * kLog2E;
    return score;
  }

  void AddPair(const HeadRows<Real>& rows, const Row& row, std::int64_t j) {
    if (!IsVisible(rows, row.i, j)) {
      if (fault_ == BackwardFault::kHiddenByMultiplying) AddHidden(rows, row.i, j);
      return;
    }
    const Score score = ScoreOf(rows, row.i, j);
    const Real p = std::exp2(score.log2 - row.lse_log2);
    const Real factor = static_cast<Real>(instance_.DropoutFactor(rows.b, rows.head, row.i, j));
    const bool omits_factor = fault_ == BackwardFault::kDropoutFactorLeftOut && factor != 0;
    const Real used_factor = omits_factor ? Real{1} : factor;
    const Real d_p = used_factor * SequentialDot(rows.d_o[row.i], rows.v[j], case_.head_dim_v);
    const Real d_score = p * (d_p - row.term);
    const Real d_scaled = Round(d_score * score.slope);
    AddBiasGradient(rows, row.i, j, d_score);
    if (!(fault_ == BackwardFault::kKeyBlockLeftOutOfDq && InBlockLeftOut(j))) {
      AddScaled(d_scaled, rows.k[j], &dq_[instance_.QIndex(rows.b, row.i, rows.head, 0)],
                case_.head_dim);
    }
    if (fault_ == BackwardFault::kQueryBlockLeftOut && InBlockLeftOut(row.i)) return;
    AddScaled(d_scaled, rows.q[row.i], KeyGradient(&dk_, rows, j), case_.head_dim);
    AddScaled(Round(p) * used_factor, rows.d_o[row.i], KeyGradient(&dv_, rows, j),
              case_.head_dim_v);
  }

  void AddHidden(const HeadRows<Real>& rows, std::int64_t i, std::int64_t j) {
    AddScaled(0, rows.k[j], &dq_[instance_.QIndex(rows.b, i, rows.head, 0)], case_.head_dim);
    AddScaled(0, rows.q[i], KeyGradient(&dk_, rows, j), case_.head_dim);
    AddScaled(0, rows.d_o[i], KeyGradient(&dv_, rows, j), case_.head_dim_v);
  }

  void AddHiddenRow(const HeadRows<Real>& rows, std::int64_t i) {
    for (std::int64_t j = 0; j < rows.sequence.kv_len; ++j) AddHidden(rows, i, j);
  }

  void AddBiasGradient(const HeadRows<Real>& rows, std::int64_t i, std::int64_t j, Real d_score) {
    if (instance_.d_bias() == nullptr) return;
    if (fault_ == BackwardFault::kBiasGradientOfOneBatch && rows.b + 1 < case_.batch) return;
    d_bias_[instance_.BiasIndex(rows.b, rows.head, i, j)] += d_score;
  }

  void ForgetKeyGradients(const HeadRows<Real>& rows) {
    for (std::int64_t j = 0; j < rows.sequence.kv_len; ++j) {
      std::fill_n(KeyGradient(&dk_, rows, j), case_.head_dim, Real{0});
      std::fill_n(KeyGradient(&dv_, rows, j), case_.head_dim_v, Real{0});
    }
  }

  Real* KeyGradient(IndexedTable<Real>* table, const HeadRows<Real>& rows, std::int64_t j) const {
    return &(*table)[instance_.KvIndex(rows.b, j, rows.kv_head, 0)];
  }

  static void AddScaled(Real factor, const Real* source, Real* sums, std::int64_t num_dims) {
    for (std::int64_t dim = 0; dim < num_dims; ++dim) sums[dim] += factor * source[dim];
  }

  void Store() {
    const Real scale = static_cast<Real>(instance_.forward().scale());
    const Real dk_scale = fault_ == BackwardFault::kScaleLeftOutOfDk ? Real{1} : scale;
    instance_.dq().Fill([&](const Indices& index) { return dq_[index] * scale; });
    instance_.dk().Fill([&](const Indices& index) { return dk_[index] * dk_scale; });
    instance_.dv().Fill([&](const Indices& index) { return dv_[index]; });
    if (instance_.d_bias() != nullptr) {
      instance_.d_bias()->Fill([&](const Indices& index) { return d_bias_[index]; });
    }
    if (instance_.d_sinks() != nullptr) {
      instance_.d_sinks()->Fill([&](const Indices& index) { return d_sinks_[index]; });
    }
  }

  const BackwardInstance& instance_;
  const ForwardCase& case_;
  const BackwardFault fault_;
  const Real scale_log2_;
  IndexedTable<Real> dq_, dk_, dv_, d_bias_, d_sinks_;
};

}  // namespace

void RunPlainBackward(const BackwardInstance& instance, PlainPrecision precision,
                      BackwardFault fault) {
  if (precision == PlainPrecision::kDouble) {
    PlainBackward<double>(instance, fault).Run();
  } else {
    PlainBackward<float>(instance, fault).Run();
  }
}

BackwardEngine PlainBackwardEngine(const BackwardInstance& instance, PlainPrecision precision,
                                   BackwardFault fault) {
  static constexpr const char* kKernelId = "plain";
  return {kKernelId, HEED_BACKEND_CPU,
          [&instance, precision, fault](const heed_backward_args_t*) {
            RunPlainBackward(instance, precision, fault);
            return HEED_OK;
          },
          [](const heed_backward_args_t*, heed_plan_info_t* plan) {
            std::snprintf(plan->kernel_id, sizeof plan->kernel_id, "%s", kKernelId);
            plan->workspace_bytes = 64;
            return HEED_OK;
          }};
}

}  // namespace heed::test
