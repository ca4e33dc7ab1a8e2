// Score rules that no forward call accepts.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "api/forward_call.h"

namespace heed::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void ExpectInvalid(const std::function<void(ForwardCall&)>& spoil, const std::string& fragment) {
  ExpectRefused(spoil, HEED_INVALID_ARGUMENT, fragment);
}

TEST(BadScore, Scale) {
  for (const double& bad : {kNaN, kInfinity, -kInfinity}) {
    ExpectInvalid([&](ForwardCall& call) { call.score.scale = &bad; }, "must be finite");
  }
  ExpectInvalid([](ForwardCall& call) { call.score.scale = &kNaN; }, "score.scale = nan");
  // FLT_MAX / log2(e) = 2.358657e38.
  for (const double& bad : {2.3587e38, -2.3587e38, 1e300}) {
    ExpectInvalid([&](ForwardCall& call) { call.score.scale = &bad; },
                  "must be finite and at most 2.35866e+38 in magnitude, so that fp32 holds");
  }
  for (const double& good : {0.0, -2.5, 1e30, 2.3586e38, -2.3586e38, 1e-300}) {
    ExpectAccepted([&](ForwardCall& call) { call.score.scale = &good; });
  }
}

TEST(BadScore, Softcap) {
  ExpectInvalid([](ForwardCall& call) { call.score.softcap = -1.0; },
                "score.softcap = -1: must be 0 (off) or in [2^-100, 2^100]");
  for (const double bad : {0x1.fffffp-101, 0x1.00001p100, 1e-300, 1e300}) {
    ExpectInvalid([&](ForwardCall& call) { call.score.softcap = bad; }, "in [2^-100, 2^100]");
  }
  for (const double good : {0.0, 0x1p-100, 30.0, 0x1p100}) {
    ExpectAccepted([&](ForwardCall& call) { call.score.softcap = good; });
  }
  ExpectInvalid([](ForwardCall& call) { call.score.softcap = kNaN; }, "score.softcap = nan");
  ExpectInvalid([](ForwardCall& call) { call.score.softcap = kInfinity; }, "score.softcap = inf");
}

TEST(BadScore, Dropout) {
  for (const double bad : {-0.1, 1.0, 1.5, kNaN, kInfinity}) {
    ExpectInvalid([&](ForwardCall& call) { call.score.dropout_p = bad; },
                  "must be at least 0 and below 1");
  }
  ExpectAccepted([](ForwardCall& call) { call.score.dropout_p = std::nextafter(1.0, 0.0); });
}

TEST(BadScore, DropoutRng) {
  OwnedTensor rng(kU64, {2});
  const auto use_rng = [&rng](ForwardCall& call) {
    call.score.dropout_p = 0.5;
    call.score.dropout_rng = &rng.abi;
  };
  ExpectAccepted(use_rng);
  ExpectInvalid(
      [&](ForwardCall& call) {
        use_rng(call);
        call.score.dropout_seed = 1;
      },
      "score.dropout_seed = 1, score.dropout_offset = 0: must be 0 when score.dropout_rng");
  rng = OwnedTensor(kU64, {3});
  ExpectInvalid(use_rng, "score.dropout_rng.shape[0] (seed and offset) = 3: must be 2");
  rng = OwnedTensor(kI32, {2});
  ExpectInvalid(use_rng, "score.dropout_rng.dtype = i32: must be one of u64, i64");
}

TEST(BadScore, Windows) {
  ExpectInvalid([](ForwardCall& call) { call.score.window_left = -2; },
                "score.window_left = -2: must be -1 (unlimited) or not negative");
  ExpectInvalid([](ForwardCall& call) { call.score.window_right = -9; }, "score.window_right = -9");
}

template <class Enum>
void SetRaw(Enum& field, std::int32_t value) {
  std::memcpy(&field, &value, sizeof(value));
}

TEST(BadScore, Enumerators) {
  ExpectInvalid([](ForwardCall& call) { SetRaw(call.score.causal, 2); },
                "score.causal = 2: must be from 0 to 1");
  ExpectInvalid([](ForwardCall& call) { SetRaw(call.score.alignment, -1); },
                "score.alignment = -1: must be from 0 to 1");
}

TEST(BadScore, AlibiSlopes) {
  OwnedTensor slopes(kF32, {4});
  const auto use = [&slopes](ForwardCall& call) { call.score.alibi_slopes = &slopes.abi; };
  ExpectAccepted(use);
  slopes = OwnedTensor(kF32, {2, 4});
  ExpectAccepted(use);
  slopes = OwnedTensor(kF32, {3});
  ExpectInvalid(use, "score.alibi_slopes.shape[0] (num_q_heads) = 3: must be 4");
  slopes = OwnedTensor(kF32, {3, 4});
  ExpectInvalid(use, "score.alibi_slopes.shape[0] (batch) = 3: must be 2");
  slopes = OwnedTensor(kF32, {1, 2, 4});
  ExpectInvalid(use,
                "score.alibi_slopes.ndim = 3: must be 1 [num_q_heads] or 2 [batch, num_q_heads]");
  slopes = OwnedTensor(kF16, {4});
  ExpectInvalid(use, "score.alibi_slopes.dtype = f16: must be f32");
}

TEST(BadScore, Sinks) {
  OwnedTensor sinks(kF32, {4});
  const auto use = [&sinks](ForwardCall& call) { call.score.sinks = &sinks.abi; };
  ExpectAccepted(use);
  sinks = OwnedTensor(kF32, {2});
  ExpectInvalid(use, "score.sinks.shape[0] (num_q_heads) = 2: must be 4");
  sinks = OwnedTensor(kF32, {2, 4});
  ExpectInvalid(use, "score.sinks.ndim = 2: must be 1 [num_q_heads]");
}

TEST(BadScore, Bias) {
  OwnedTensor bias(kF32, {2, 4, 3, 5});
  const auto use = [&bias](ForwardCall& call) { call.score.bias = &bias.abi; };
  ExpectAccepted(use);
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{1, 4, 3, 5}, {4, 1, 5}, {3, 5}, {5}, {2, 1, 1, 1}}) {
    bias = OwnedTensor(kF32, shape);
    ExpectAccepted(use);
  }
  bias = OwnedTensor(kF32, {2, 2, 3, 5});
  ExpectInvalid(use, "score.bias.shape[1] (num_q_heads) = 2: must be 1 or 4");
  bias = OwnedTensor(kF32, {3, 6});
  ExpectInvalid(use, "score.bias.shape[1] (kv_len) = 6: must be 1 or 5");
  bias = OwnedTensor(kF32, {1, 2, 4, 3, 5});
  ExpectInvalid(use,
                "score.bias.ndim = 5: must be from 1 to 4, the last axes of [batch, num_q_heads, "
                "q_len, kv_len]");
  bias = OwnedTensor(kF32, {});
  ExpectInvalid(use, "score.bias.ndim = 0: must be from 1 to 4");
  bias = OwnedTensor(kBF16, {3, 5});
  ExpectInvalid(use, "score.bias.dtype = bf16: must be f32");  // which is q's dtype too
}

TEST(BadScore, ChoicesAreNamedOnce) {
  OwnedTensor bias(kF32, {2, 4, 3, 5});
  ForwardCall call;
  call.score.bias = &bias.abi;
  call.q.shape[1] = call.o.shape[1] = call.lse.shape[2] = 1;
  ExpectRefused(call, HEED_INVALID_ARGUMENT, "score.bias.shape[2] (q_len) = 3: must be 1");
  EXPECT_EQ(std::string(heed_last_error()).find(" or "), std::string::npos) << heed_last_error();
  OwnedTensor half_bias(kF16, {2, 4, 3, 5});
  call.score.bias = &half_bias.abi;
  ExpectRefused(call, HEED_INVALID_ARGUMENT, "score.bias.dtype = f16: must be f32");
  EXPECT_EQ(std::string(heed_last_error()).find(","), std::string::npos) << heed_last_error();
}

TEST(BadScore, Mask) {
  OwnedTensor mask(kU8, {2, 1, 3, 5});
  const auto use = [&mask](ForwardCall& call) { call.score.mask = &mask.abi; };
  ExpectAccepted(use);
  mask = OwnedTensor(kU8, {2, 1, 2, 5});
  ExpectInvalid(use, "score.mask.shape[2] (q_len) = 2: must be 1 or 3");
  mask = OwnedTensor(kU8, {1, 1, 1, 3, 5});
  ExpectInvalid(use, "score.mask.ndim = 5: must be from 1 to 4");
  mask = OwnedTensor(kF32, {3, 5});
  ExpectInvalid(use, "score.mask.dtype = f32: must be one of bool, u8");
}

// Indexed within the sequence, so any extent that reaches the longest one will do.
TEST(BadScore, BiasOfPackedRows) {
  OwnedTensor bias(kF32, {4, 7});
  const auto use = [&bias](ForwardCall& call) {
    call.PackQ();
    call.PackKv();
    call.score.bias = &bias.abi;
  };
  ExpectAccepted(use);
  bias = OwnedTensor(kF32, {9, 9});
  ExpectAccepted(use);
  bias = OwnedTensor(kF32, {3, 7});
  ExpectInvalid(use, "score.bias.shape[0] (q_len) = 3: must be 1 or at least 4");
  bias = OwnedTensor(kF32, {4, 6});
  ExpectInvalid(use, "score.bias.shape[1] (kv_len) = 6: must be 1 or at least 7");
}

}  // namespace
}  // namespace heed::test
