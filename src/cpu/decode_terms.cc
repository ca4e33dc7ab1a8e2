#include "cpu/decode_terms.h"

#include <cmath>

#include "core/kv_row.h"
#include "device/dropout.h"

namespace heed::cpu {

void FillAdditiveRow(const core::DecodeProblem& problem, const DecodeRows& rows, int row,
                     device::KeyRange keys, float* additive) {
  const core::ScoreRule& rule = problem.attention.score;
  const std::int64_t batch = rows.task.batch;
  const std::int64_t token = rows.Token(problem, row);
  const std::int64_t q_head = rows.QHead(problem, row);
  const std::int64_t position =
      token + device::PositionShift(rule.window.alignment, problem.attention.shape.max_q_len,
                                    rows.sequence.kv_len);
  const float slope = rule.alibi_slopes.present() ? rule.alibi_slopes.At(batch, q_head) : 0.0f;
  for (std::int64_t key = keys.begin; key < keys.end; ++key) {
    float term = 0.0f;
    if (rule.bias.present()) {
      term = core::LoadFloat(rule.bias.data, rule.bias.dtype,
                             rule.bias.OffsetElems(batch, q_head, token, key));
    }
    if (rule.alibi_slopes.present()) term += device::AlibiBias(slope, position, key);
    if (std::isinf(term) && term > 0.0f) term = std::nanf("");
    if (rule.mask.present()) {
      const auto* mask = static_cast<const std::uint8_t*>(rule.mask.data);
      if (mask[rule.mask.OffsetElems(batch, q_head, token, key)] == 0) term = kHiddenTerm;
    }
    additive[key - keys.begin] = term;
  }
}

void FillKeepRow(const core::DecodeProblem& problem, const DecodeRows& rows, int row,
                 device::KeyRange keys, float* keep) {
  const core::DropoutRule& rule = problem.attention.score.dropout;
  const std::int64_t head_index =
      rows.task.batch * problem.attention.shape.num_q_heads + rows.QHead(problem, row);
  const auto token = static_cast<std::uint32_t>(rows.Token(problem, row));
  for (std::int64_t key = keys.begin; key < keys.end; ++key) {
    const std::uint32_t number =
        device::DropoutNumber(rule.seed, rule.offset, static_cast<std::uint32_t>(head_index), token,
                              static_cast<std::uint32_t>(key));
    keep[key - keys.begin] = device::IsKept(number, rule.drop_threshold) ? 1.0f : 0.0f;
  }
}

}  // namespace heed::cpu
