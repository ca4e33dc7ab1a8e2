// What the tensors of a BackwardInstance hold.
#include "support/backward_instance.h"
#include "support/input_values.h"
#include "support/random.h"

namespace heed::test {
namespace {

// Keeps dS within fp16: with V = 100 + small, dP is about 100 times the sum of a row of d_o.
double OutputGradientSize(const ForwardCase& forward) {
  return forward.values == Values::kOffsetV ? 0x1p-4 : 1.0;
}

}  // namespace

void BackwardInstance::FillDeadSlots() {
  for (std::int64_t b = 0; b < case_.forward.batch; ++b) {
    for (std::int64_t head = 0; head < case_.forward.num_kv_heads; ++head) FillDeadKeys(b, head);
    for (std::int64_t head = 0; head < case_.forward.num_q_heads; ++head) FillDeadQueries(b, head);
  }
}

void BackwardInstance::FillDeadKeys(std::int64_t b, std::int64_t kv_head) {
  const ForwardCase& what = case_.forward;
  const SequenceLengths& sequence = forward_->lengths().sequences[static_cast<std::size_t>(b)];
  const std::int64_t group = what.num_q_heads / what.num_kv_heads;
  Random random(what.seed, "dead keys");
  const auto is_seen = [&](std::int64_t token) {
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t row = 0; row < sequence.q_len; ++row) {
        if (forward_->Visible(b, head, row, token)) return true;
      }
    }
    return false;
  };
  for (std::int64_t token = 0; token < sequence.kv_len; ++token) {
    if (is_seen(token)) continue;
    for (std::int64_t dim = 0; dim < what.head_dim; ++dim) {
      forward_->k_->Set(KvIndex(b, token, kv_head, dim), DrawKey(what, token, random));
    }
    for (std::int64_t dim = 0; dim < what.head_dim_v; ++dim) {
      forward_->v_->Set(KvIndex(b, token, kv_head, dim), DrawValue(what, random));
    }
  }
}

void BackwardInstance::FillDeadQueries(std::int64_t b, std::int64_t head) {
  Random random(case_.forward.seed, "dead queries");
  const SequenceLengths& sequence = forward_->lengths().sequences[static_cast<std::size_t>(b)];
  for (std::int64_t row = 0; row < sequence.q_len; ++row) {
    if (forward_->SeesAnyKey(b, head, row)) continue;
    for (std::int64_t dim = 0; dim < case_.forward.head_dim; ++dim) {
      forward_->q_->Set(QIndex(b, row, head, dim), DrawQuery(case_.forward, random));
    }
  }
}

void BackwardInstance::FillGradientsOfResults() {
  const ForwardCase& what = case_.forward;
  Random d_o_values(what.seed, "d_o values");
  Random d_lse_values(what.seed, "d_lse values");
  const double size = OutputGradientSize(what);
  for (std::int64_t b = 0; b < what.batch; ++b) {
    const SequenceLengths& sequence = forward_->lengths().sequences[static_cast<std::size_t>(b)];
    for (std::int64_t head = 0; head < what.num_q_heads; ++head) {
      for (std::int64_t row = 0; row < sequence.q_len; ++row) {
        const bool is_live = !case_.dead_poison || forward_->SeesAnyKey(b, head, row);
        for (std::int64_t dim = 0; is_live && dim < what.head_dim_v; ++dim) {
          d_o_->Set(QIndex(b, row, head, dim), size * d_o_values.Normal());
        }
        // With a sink a row that sees no key has lse = sink, and d_lse reaches d_sinks.
        if (!d_lse_ || !(is_live || what.sinks)) continue;
        d_lse_->Set(forward_->LseIndex(b, head, row), d_lse_values.Normal());
      }
    }
  }
}

void BackwardInstance::FillForwardResults() {
  const ForwardCase& what = case_.forward;
  exact_forward_ = forward_->Upcast();
  exact_forward_->PrepareRun();
  if (heed_forward(exact_forward_->args()) != HEED_OK) {
    forward_failure_ = std::string("the oracle's heed_forward: ") + heed_last_error();
    return;
  }
  for (std::int64_t b = 0; b < what.batch; ++b) {
    const SequenceLengths& sequence = forward_->lengths().sequences[static_cast<std::size_t>(b)];
    for (std::int64_t head = 0; head < what.num_q_heads; ++head) {
      for (std::int64_t row = 0; row < sequence.q_len; ++row) {
        forward_->lse_->Set(forward_->LseIndex(b, head, row), exact_forward_->Lse(b, head, row));
        for (std::int64_t dim = 0; dim < what.head_dim_v; ++dim) {
          forward_->o_->Set(QIndex(b, row, head, dim), exact_forward_->Output(b, row, head, dim));
        }
      }
    }
  }
}

}  // namespace heed::test
