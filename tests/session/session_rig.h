// A session and every token it was given, so that its output can be worked out again by
// heed_forward's oracle.
#ifndef HEED_TESTS_SESSION_SESSION_RIG_H_
#define HEED_TESTS_SESSION_SESSION_RIG_H_

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

// In this order: the constants of owned_tensor.h have the names of enumerators.
// clang-format off
#include "support/element.h"
#include "support/random.h"
#include "support/tolerance.h"
#include "api/owned_tensor.h"
// clang-format on

namespace heed::test {

// Compiled a second time for GPUs, whose decode rows take 16-bit types: fp32 sessions become fp16.
#if defined(HEED_SESSIONS_ON_CUDA)
inline constexpr bool kOnCuda = true;
#else
inline constexpr bool kOnCuda = false;
#endif

struct SessionShape {
  std::int64_t batch = 1, num_q_heads = 4, num_kv_heads = 2, head_dim = 64, head_dim_v = 64;
  std::int64_t capacity = 64;
  Element element = Element::kF32;
  heed_kv_format_t format = HEED_KV_PLAIN;
};

class SessionRig {
 public:
  explicit SessionRig(const SessionShape& session_shape, std::uint64_t seed = 1)
      : shape(session_shape), random_(seed, "session") {
    if (kOnCuda) {
      if (shape.element == Element::kF32) shape.element = Element::kF16;
      config.device = {HEED_DEVICE_CUDA, 0};
    }
    config.num_sequences = shape.batch;
    config.num_q_heads = shape.num_q_heads;
    config.num_kv_heads = shape.num_kv_heads;
    config.head_dim = shape.head_dim;
    config.head_dim_v = shape.head_dim_v;
    config.capacity_tokens = shape.capacity;
    config.dtype = ElementToAbi(shape.element);
    config.kv_format = shape.format;
    config.score = &score;
    config.exec = &exec;
  }
  SessionRig(const SessionRig&) = delete;
  SessionRig& operator=(const SessionRig&) = delete;
  ~SessionRig() { EXPECT_EQ(heed_session_destroy(session), HEED_OK) << heed_last_error(); }

  heed_status_t Create() { return heed_session_create(&config, &session); }

  // Random tokens, in fp32 or the session's dtype (rounded to it either way).
  heed_status_t Append(std::int64_t num_tokens, Element element) {
    elements_.push_back(element);
    q.push_back(Rows(num_tokens, shape.num_q_heads, shape.head_dim, element));
    k.push_back(Rows(num_tokens, shape.num_kv_heads, shape.head_dim, element));
    v.push_back(Rows(num_tokens, shape.num_kv_heads, shape.head_dim_v, element));
    return heed_session_append(session, &q.back().abi, &k.back().abi, &v.back().abi);
  }
  heed_status_t Append(std::int64_t num_tokens) { return Append(num_tokens, Element::kF32); }

  // o as doubles, [B, S, Hq, Dv].
  std::vector<double> Output(Element element) {
    OwnedTensor o(ElementToAbi(element),
                  {shape.batch, q.back().shape[1], shape.num_q_heads, shape.head_dim_v}, 0xFF);
    EXPECT_EQ(heed_session_output(session, &o.abi), HEED_OK) << heed_last_error();
    return Doubles(o, element);
  }

  // What heed_forward's oracle says of the last append over all tokens, rounded to the session's
  // dtype.
  std::vector<double> Expected() {
    const std::int64_t tokens = q.back().shape[1];
    OwnedTensor queries(kF32, {shape.batch, tokens, shape.num_q_heads, shape.head_dim});
    OwnedTensor o(kF32, {shape.batch, tokens, shape.num_q_heads, shape.head_dim_v});
    OwnedTensor keys = Joined(k, shape.num_kv_heads, shape.head_dim);
    OwnedTensor values = Joined(v, shape.num_kv_heads, shape.head_dim_v);
    const std::vector<double> given = Doubles(q.back(), elements_.back());
    std::copy(given.begin(), given.end(), queries.data<float>());
    heed_exec_args_t oracle = HEED_EXEC_ARGS_INIT;
    oracle.backend = HEED_BACKEND_REFERENCE;
    heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
    args.q = &queries.abi;
    args.k = &keys.abi;
    args.v = &values.abi;
    args.o = &o.abi;
    args.score = &score;
    args.exec = &oracle;
    EXPECT_EQ(heed_forward(&args), HEED_OK) << heed_last_error();
    return Doubles(o, Element::kF32);
  }

  // Of every element of the output. Inputs are standard normal numbers.
  double Bound() const {
    ForwardFacts facts;
    facts.element = shape.element;
    facts.rounding = RoundingModel::kRandom;
    facts.head_dim = shape.head_dim;
    facts.num_keys = NumTokens();
    facts.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
    facts.softcap = score.softcap;
    facts.max_abs_product = 3.0 * static_cast<double>(shape.head_dim);
    facts.max_abs_added = score.alibi_slopes != nullptr ? static_cast<double>(NumTokens()) : 0.0;
    facts.max_abs_value = 5.0;
    return ComputeForwardTolerance(facts).output_abs;
  }

  std::int64_t NumTokens() const {
    std::int64_t tokens = 0;
    for (const OwnedTensor& rows : k) tokens += rows.shape[1];
    return tokens;
  }
  heed_session_info_t Query() const {
    heed_session_info_t info = HEED_SESSION_INFO_INIT;
    EXPECT_EQ(heed_session_query(session, &info), HEED_OK) << heed_last_error();
    return info;
  }
  // The caller forgets what a truncation dropped: whole appends only.
  void Forget(std::size_t appends) {
    for (std::size_t n = 0; n < appends; ++n) {
      q.pop_back();
      k.pop_back();
      v.pop_back();
      elements_.pop_back();
    }
  }

  SessionShape shape;
  heed_session_config_t config = HEED_SESSION_CONFIG_INIT;
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_session_t* session = nullptr;
  std::vector<OwnedTensor> q, k, v;  // as appended

 private:
  OwnedTensor Rows(std::int64_t tokens, std::int64_t heads, std::int64_t dim, Element element) {
    OwnedTensor rows(ElementToAbi(element), {shape.batch, tokens, heads, dim});
    const std::int64_t count = shape.batch * tokens * heads * dim;
    for (std::int64_t n = 0; n < count; ++n) {
      const double value = RoundToElement(shape.element, random_.Normal());
      StoreElement(element, rows.data<std::uint8_t>() + n * ElementBytes(element), value);
    }
    return rows;
  }

  std::vector<double> Doubles(OwnedTensor& rows, Element element) {
    std::int64_t count = 1;
    for (const std::int64_t extent : rows.shape) count *= extent;
    std::vector<double> values;
    for (std::int64_t n = 0; n < count; ++n) {
      values.push_back(LoadElement(element, rows.data<std::uint8_t>() + n * ElementBytes(element)));
    }
    return values;
  }

  OwnedTensor Joined(std::vector<OwnedTensor>& parts, std::int64_t heads, std::int64_t dim) {
    OwnedTensor joined(kF32, {shape.batch, NumTokens(), heads, dim});
    std::int64_t first = 0;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const std::vector<double> values = Doubles(parts[part], elements_[part]);
      const std::int64_t rows = parts[part].shape[1] * heads * dim;
      for (std::int64_t b = 0; b < shape.batch; ++b) {
        std::copy_n(values.begin() + b * rows, rows,
                    joined.data<float>() + (b * NumTokens() + first) * heads * dim);
      }
      first += parts[part].shape[1];
    }
    return joined;
  }

  Random random_;
  std::vector<Element> elements_;  // of each append
};

inline void ExpectNear(const std::vector<double>& got, const std::vector<double>& wanted,
                       double bound) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t n = 0; n < got.size(); ++n) {
    ASSERT_LE(std::abs(got[n] - wanted[n]), bound)
        << "element " << n << ": " << got[n] << ", not " << wanted[n];
  }
}

}  // namespace heed::test

#endif  // HEED_TESTS_SESSION_SESSION_RIG_H_
