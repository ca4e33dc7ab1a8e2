#include "visible_keys.h"

#include <algorithm>

namespace heed::tools {

KeySpan VisibleKeys(const ScoreOptions& score, std::int64_t query, std::int64_t q_len,
                    std::int64_t kv_len) {
  const std::int64_t shift = score.alignment == HEED_ALIGN_TOP_LEFT ? 0 : kv_len - q_len;
  const std::int64_t position = query + shift;
  const std::int64_t left = score.window[0];
  std::int64_t right = score.window[1];
  if (score.causal == HEED_CAUSAL_ON) right = right < 0 ? 0 : std::min<std::int64_t>(right, 0);
  KeySpan span{0, kv_len};
  if (left >= 0 && left < position) span.begin = std::min(position - left, kv_len);
  if (right >= 0 && right < kv_len - 1 - position) span.end = position + right + 1;
  span.end = std::max(span.end, span.begin);
  return span;
}

namespace {

double VisiblePairs(const ScoreOptions& score, const ResolvedShape& shape) {
  double pairs = 0.0;
  for (std::int64_t query = 0; query < shape.q_len; ++query) {
    const KeySpan span = VisibleKeys(score, query, shape.q_len, shape.kv_len);
    pairs += static_cast<double>(span.end - span.begin);
  }
  return pairs * static_cast<double>(shape.batch * shape.num_q_heads);
}

}  // namespace

double UsefulFlops(const ScoreOptions& score, const ResolvedShape& shape) {
  return VisiblePairs(score, shape) *
         static_cast<double>(2 * shape.head_dim + 2 * shape.head_dim_v);
}

double UsefulBackwardFlops(const ScoreOptions& score, const ResolvedShape& shape) {
  return VisiblePairs(score, shape) *
         static_cast<double>(6 * shape.head_dim + 4 * shape.head_dim_v);
}

}  // namespace heed::tools
