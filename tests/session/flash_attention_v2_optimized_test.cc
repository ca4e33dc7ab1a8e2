// flash_attention_v2_optimized.h: what its programs rely on, against attention in double precision
// over the tokens that were loaded.
#include "flash_attention_v2_optimized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "heed/heed.h"
#include "support/element.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace heed::test {
namespace {

using Floats = std::vector<float>;

class FlashAttentionV2Opt : public testing::Test {
 protected:
#if defined(HEED_SESSIONS_ON_CUDA)
  FlashAttentionV2Opt() { setenv("HEED_FLASH_ATTENTION_V2_OPT", "cuda", 1); }
#endif
  ~FlashAttentionV2Opt() override { flash_attention_v2_opt_cleanup(); }
};

struct Token {
  Floats q, k, v;
};

// Numbers that fp16 holds, so that the cache keeps them exactly.
Token DrawToken(Random& random, int heads, int dim) {
  Token token;
  for (Floats* rows : {&token.q, &token.k, &token.v}) {
    for (int n = 0; n < heads * dim; ++n) {
      rows->push_back(static_cast<float>(RoundToElement(Element::kF16, random.Normal())));
    }
  }
  return token;
}

// Attention of the last token's q over all of them.
std::vector<double> Expected(const std::vector<Token>& tokens, int heads, int dim) {
  std::vector<double> o;
  const Floats& q = tokens.back().q;
  for (int head = 0; head < heads; ++head) {
    const auto at = [&](const Floats& rows, int d) {
      return static_cast<double>(rows[static_cast<std::size_t>(head * dim + d)]);
    };
    double sum = 0.0;
    std::vector<double> row(static_cast<std::size_t>(dim), 0.0);
    for (const Token& token : tokens) {
      double dot = 0.0;
      for (int d = 0; d < dim; ++d) dot += at(q, d) * at(token.k, d);
      const double weight = std::exp(dot / std::sqrt(static_cast<double>(dim)));
      sum += weight;
      for (int d = 0; d < dim; ++d) row[static_cast<std::size_t>(d)] += weight * at(token.v, d);
    }
    for (const double value : row) o.push_back(value / sum);
  }
  return o;
}

void ExpectClose(const Floats& got, const std::vector<double>& wanted, int dim,
                 std::size_t num_tokens) {
  ForwardFacts facts;
  facts.element = Element::kF16;
  facts.rounding = RoundingModel::kRandom;
  facts.head_dim = dim;
  facts.num_keys = static_cast<std::int64_t>(num_tokens);
  facts.scale = 1.0 / std::sqrt(static_cast<double>(dim));
  facts.max_abs_product = 3.0 * dim;
  facts.max_abs_value = 5.0;
  const double bound = ComputeForwardTolerance(facts).output_abs;
  for (std::size_t n = 0; n < got.size(); ++n) ASSERT_NEAR(got[n], wanted[n], bound) << n;
}

struct Model {
  const char* name;
  int heads, dim;
};

constexpr Model kModels[] = {{"SmolLM-135M", 9, 64}, {"Qwen-0.5B", 14, 64}, {"Qwen-1.5B", 12, 128}};

// The generation loop that the interface is for.
TEST_F(FlashAttentionV2Opt, GeneratesTokenByToken) {
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    Random random(3, model.name);
    std::vector<Token> tokens;
    Floats o(static_cast<std::size_t>(model.heads * model.dim));
    ASSERT_EQ(flash_attention_v2_opt_init(model.heads, 512, model.dim), 0) << heed_last_error();
    for (int position = 0; position < 300; ++position) {
      tokens.push_back(DrawToken(random, model.heads, model.dim));
      const Token& token = tokens.back();
      ASSERT_EQ(flash_attention_v2_opt_load_qkv(token.q.data(), token.k.data(), token.v.data(),
                                                model.heads),
                0)
          << heed_last_error();
      ASSERT_EQ(flash_attention_v2_opt_decode_gpu(model.heads, position > 256), 0);
      if (position % 50 != 0 && position != 299) continue;
      flash_attention_v2_opt_sync();
      ASSERT_EQ(flash_attention_v2_opt_get_output(o.data(), model.heads), 0) << heed_last_error();
      ExpectClose(o, Expected(tokens, model.heads, model.dim), model.dim, tokens.size());
    }
  }
}

// Without init, and again from a position in the middle.
TEST_F(FlashAttentionV2Opt, DecodesInOneCall) {
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    Random random(4, model.name);
    std::vector<Token> tokens;
    Floats o(static_cast<std::size_t>(model.heads * model.dim));
    const auto decode = [&](int position) {
      const Token& token = tokens.back();
      return flash_attention_v2_opt_decode(token.q.data(), token.k.data(), token.v.data(), o.data(),
                                           model.heads, position, model.dim);
    };
    for (int position = 0; position < 20; ++position) {
      tokens.push_back(DrawToken(random, model.heads, model.dim));
      ASSERT_EQ(decode(position), 0) << heed_last_error();
      ExpectClose(o, Expected(tokens, model.heads, model.dim), model.dim, tokens.size());
    }
    tokens.resize(7);
    tokens.push_back(DrawToken(random, model.heads, model.dim));
    ASSERT_EQ(decode(7), 0) << heed_last_error();
    ExpectClose(o, Expected(tokens, model.heads, model.dim), model.dim, tokens.size());
    const Floats before = o;
    EXPECT_EQ(decode(9), HEED_INVALID_ARGUMENT);
    EXPECT_NE(std::string(heed_last_error()).find("cache_pos = 9: must be from 0 to 8"),
              std::string::npos)
        << heed_last_error();
    const float* q = tokens[0].q.data();
    EXPECT_NE(flash_attention_v2_opt_decode(q, q, q, nullptr, model.heads, 0, model.dim), 0);
    EXPECT_NE(flash_attention_v2_opt_decode(q, nullptr, q, o.data(), model.heads, 0, model.dim), 0);
    EXPECT_NE(flash_attention_v2_opt_decode(q, q, q, o.data(), 0, 0, model.dim), 0);
    EXPECT_NE(flash_attention_v2_opt_decode(q, q, q, o.data(), 1, 8, model.dim), 0);
    EXPECT_NE(flash_attention_v2_opt_decode(q, q, q, o.data(), model.heads, 8, 1), 0);
    EXPECT_EQ(o, before);
    int max_cache = 0, seq_len = 0;
    flash_attention_v2_opt_info(nullptr, &max_cache, nullptr, nullptr, &seq_len);
    EXPECT_EQ(max_cache, 2048);
    EXPECT_EQ(seq_len, 8);
  }
}

TEST_F(FlashAttentionV2Opt, CallsInTheWrongState) {
  Random random(5, "state");
  const Token token = DrawToken(random, 4, 32);
  Floats o(4 * 32, -1.0f);
  const auto load = [&](int heads) {
    return flash_attention_v2_opt_load_qkv(token.q.data(), token.k.data(), token.v.data(), heads);
  };
  EXPECT_NE(load(4), 0);
  EXPECT_NE(flash_attention_v2_opt_decode_gpu(4, 0), 0);
  EXPECT_NE(flash_attention_v2_opt_get_output(o.data(), 4), 0);
  flash_attention_v2_opt_sync();
  flash_attention_v2_opt_reset();
  flash_attention_v2_opt_cleanup();
  for (const int bad : {0, -1}) {
    EXPECT_NE(flash_attention_v2_opt_init(bad, 16, 32), 0);
    EXPECT_NE(flash_attention_v2_opt_init(4, bad, 32), 0);
    EXPECT_NE(flash_attention_v2_opt_init(4, 16, bad), 0);
  }
  // In the words of this interface, not of the session below it.
  const auto expect_error = [](const char* text) {
    EXPECT_NE(std::string(heed_last_error()).find(text), std::string::npos) << heed_last_error();
  };
  ASSERT_EQ(flash_attention_v2_opt_init(4, 2, 32), 0);
  EXPECT_NE(flash_attention_v2_opt_decode_gpu(4, 0), 0) << "nothing was loaded";
  expect_error("flash_attention_v2_opt_load_qkv must come before");
  ASSERT_EQ(load(4), 0);
  EXPECT_NE(flash_attention_v2_opt_get_output(o.data(), 4), 0) << "nothing was decoded";
  expect_error("flash_attention_v2_opt_decode_gpu must come before");
  EXPECT_NE(load(0), 0);
  EXPECT_NE(load(5), 0);
  EXPECT_NE(load(3), 0) << "other heads than the token before";
  EXPECT_NE(flash_attention_v2_opt_load_qkv(nullptr, token.k.data(), token.v.data(), 4), 0);
  expect_error("Q = NULL");
  EXPECT_NE(flash_attention_v2_opt_decode_gpu(5, 0), 0);
  ASSERT_EQ(flash_attention_v2_opt_decode_gpu(4, 0), 0);
  EXPECT_NE(flash_attention_v2_opt_get_output(nullptr, 4), 0);
  EXPECT_NE(flash_attention_v2_opt_get_output(o.data(), 5), 0);
  EXPECT_EQ(std::count(o.begin(), o.end(), -1.0f), 4 * 32) << "refused calls wrote nothing";
  ASSERT_EQ(load(4), 0);
  EXPECT_NE(load(4), 0) << "the cache is full";
  expect_error("max_cache_len = 2 of flash_attention_v2_opt_init");
  ASSERT_EQ(flash_attention_v2_opt_decode_gpu(4, 1), 0);
  EXPECT_EQ(flash_attention_v2_opt_get_output(o.data(), 4), 0);
  // The same token twice: its own value.
  for (std::size_t n = 0; n < o.size(); ++n) EXPECT_NEAR(o[n], token.v[n], 2e-3 * std::abs(o[n]));
  flash_attention_v2_opt_reset();
  EXPECT_NE(flash_attention_v2_opt_get_output(o.data(), 4), 0);
  EXPECT_NE(flash_attention_v2_opt_decode_gpu(4, 0), 0);
  EXPECT_EQ(load(3), 0) << "fewer heads after a reset";
  EXPECT_EQ(flash_attention_v2_opt_decode_gpu(3, 0), 0);
}

TEST_F(FlashAttentionV2Opt, InitThatFails) {
  Random random(8, "init");
  const Token token = DrawToken(random, 4, 32);
  Floats o(4 * 32);
  const auto step = [&](int head_dim) {
    return flash_attention_v2_opt_decode(token.q.data(), token.k.data(), token.v.data(), o.data(),
                                         4, 0, head_dim);
  };
  int initialized = 0;
  int tokens = 0;
  ASSERT_EQ(step(32), 0);
  EXPECT_NE(step(0), 0);
  EXPECT_NE(std::string(heed_last_error()).find("head_dim = 0: must be at least 1"),
            std::string::npos);
  EXPECT_NE(flash_attention_v2_opt_init(4, 0, 32), 0);
  flash_attention_v2_opt_info(&initialized, nullptr, nullptr, nullptr, &tokens);
  EXPECT_EQ(initialized, 1);
  EXPECT_EQ(tokens, 1) << "sizes below 1 change nothing";
  EXPECT_NE(flash_attention_v2_opt_init(4, 16, 100000), 0) << "no kernel is that wide";
  flash_attention_v2_opt_info(&initialized, nullptr, nullptr, nullptr, &tokens);
  EXPECT_EQ(initialized, 0) << "the former cache had to make room";
}

TEST_F(FlashAttentionV2Opt, FewerRowsOfTheOutput) {
  Random random(6, "rows");
  const Token token = DrawToken(random, 4, 32);
  Floats all(4 * 32), some(4 * 32, -1.0f);
  ASSERT_EQ(flash_attention_v2_opt_init(8, 16, 32), 0);
  ASSERT_EQ(flash_attention_v2_opt_load_qkv(token.q.data(), token.k.data(), token.v.data(), 4), 0);
  ASSERT_EQ(flash_attention_v2_opt_decode_gpu(4, 0), 0);
  ASSERT_EQ(flash_attention_v2_opt_get_output(all.data(), 4), 0);
  ASSERT_EQ(flash_attention_v2_opt_get_output(some.data(), 3), 0);
  std::fill(all.begin() + 3 * 32, all.end(), -1.0f);
  EXPECT_EQ(some, all);
}

TEST_F(FlashAttentionV2Opt, Info) {
  int values[5] = {-1, -1, -1, -1, -1};
  const auto read = [&] {
    flash_attention_v2_opt_info(&values[0], &values[1], &values[2], &values[3], &values[4]);
    return std::vector<int>(values, values + 5);
  };
  EXPECT_EQ(read(), (std::vector<int>{0, 0, 0, 0, 0}));
  ASSERT_EQ(flash_attention_v2_opt_init(4, 16, 32), 0);
  EXPECT_EQ(read(), (std::vector<int>{1, 16, 4, 32, 0}));
  Random random(7, "info");
  const Token token = DrawToken(random, 2, 32);
  ASSERT_EQ(flash_attention_v2_opt_load_qkv(token.q.data(), token.k.data(), token.v.data(), 2), 0);
  EXPECT_EQ(read(), (std::vector<int>{1, 16, 4, 32, 1}));
  ASSERT_EQ(flash_attention_v2_opt_init(2, 8, 64), 0) << "a second init starts again";
  EXPECT_EQ(read(), (std::vector<int>{1, 8, 2, 64, 0}));
  flash_attention_v2_opt_info(nullptr, nullptr, nullptr, nullptr, nullptr);
  flash_attention_v2_opt_cleanup();
  EXPECT_EQ(read(), (std::vector<int>{0, 0, 0, 0, 0}));
}

TEST_F(FlashAttentionV2Opt, DeviceFromTheEnvironment) {
  const char* given = std::getenv("HEED_FLASH_ATTENTION_V2_OPT");
  const std::string before = given != nullptr ? given : "";
  ASSERT_EQ(setenv("HEED_FLASH_ATTENTION_V2_OPT", "tpu", 1), 0);
  EXPECT_EQ(flash_attention_v2_opt_init(2, 8, 64), HEED_INVALID_ARGUMENT);
  EXPECT_NE(std::string(heed_last_error()).find("HEED_FLASH_ATTENTION_V2_OPT = tpu: must be"),
            std::string::npos);
  ASSERT_EQ(setenv("HEED_FLASH_ATTENTION_V2_OPT", "cpu", 1), 0);
  EXPECT_EQ(flash_attention_v2_opt_init(2, 8, 64), 0);
  setenv("HEED_FLASH_ATTENTION_V2_OPT", before.c_str(), 1);  // empty = not set
}

}  // namespace
}  // namespace heed::test
