// Promises of heed_decode beyond agreement with the oracle: bits, hidden memory, empty calls, and
// what append and rotary mean, worked out here once more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "decode/decode_instance.h"

namespace heed::test {
namespace {

void RunBackwards(void*, std::int64_t num_workers, void (*body)(void*, std::int64_t),
                  void* context) {
  for (std::int64_t worker = num_workers; worker-- > 0;) body(context, worker);
}

TEST(Decode, SameBitsForEveryNumberOfThreads) {
  for (std::uint64_t index = 1000; index < 1016; ++index) {
    const DecodeCase decode_case = GenerateDecodeCase(index);
    SCOPED_TRACE(Describe(decode_case));
    DecodeInstance instance(decode_case);
    ASSERT_EQ(instance.Run({.num_threads = 1}), HEED_OK) << heed_last_error();
    const std::vector<std::uint64_t> wanted = instance.ResultBytes();
    for (const std::int32_t threads : {2, 5}) {
      ASSERT_EQ(instance.Run({.num_threads = threads}), HEED_OK) << heed_last_error();
      EXPECT_EQ(instance.ResultBytes(), wanted) << threads << " threads";
    }
    ASSERT_EQ(instance.Run({.num_threads = 3, .parallel_for = RunBackwards}), HEED_OK);
    EXPECT_EQ(instance.ResultBytes(), wanted) << "the caller's pool";
  }
}

// Three sequences of 4 query and 2 KV heads.
struct Sequences {
  static constexpr std::int64_t kBatch = 3, kSlots = 2048, kDim = 64;

  Sequences() {
    Random random(7, "sequences");
    for (OwnedTensor* tensor : {&q, &k, &v, &k_new, &v_new}) {
      const std::int64_t count = tensor->shape[0] * tensor->strides[0];
      for (std::int64_t i = 0; i < count; ++i) {
        tensor->data<float>()[i] = static_cast<float>(random.Normal());
      }
    }
    args.q = &q.abi;
    args.k_cache = &k.abi;
    args.v_cache = &v.abi;
    args.o = &o.abi;
    args.lse = &lse.abi;
    args.cache_lengths = &lengths.abi;
    args.score = &score;
    args.exec = &exec;
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  float* KeyRow(std::int64_t b, std::int64_t slot, std::int64_t head) {
    return k.data<float>() + ((b * kSlots + slot) * 2 + head) * kDim;
  }
  float* ValueRow(std::int64_t b, std::int64_t slot, std::int64_t head) {
    return v.data<float>() + ((b * kSlots + slot) * 2 + head) * kDim;
  }
  float Output(std::int64_t b, std::int64_t head, std::int64_t d) {
    return o.data<float>()[(b * 4 + head) * kDim + d];
  }

  OwnedTensor q{kF32, {kBatch, 1, 4, kDim}};
  OwnedTensor k{kF32, {kBatch, kSlots, 2, kDim}};
  OwnedTensor v{kF32, {kBatch, kSlots, 2, kDim}};
  OwnedTensor k_new{kF32, {kBatch, 1, 2, kDim}};
  OwnedTensor v_new{kF32, {kBatch, 1, 2, kDim}};
  OwnedTensor o{kF32, {kBatch, 1, 4, kDim}, 0xFF};
  OwnedTensor lse{kF32, {kBatch, 4, 1}, 0xFF};
  OwnedTensor lengths = OwnedTensor::Indices({700, 2000, 3});
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
};

TEST(Decode, FixedSplitDoesNotSeeTheBatch) {
  Sequences call;
  call.exec.fixed_split = HEED_ON;
  ASSERT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
  const std::vector<std::uint64_t> together = call.o.bytes();
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_DECODE, &call.args, &plan), HEED_OK);
  EXPECT_EQ(plan.num_splits, 4);
  // Each alone, at the place in o that it had.
  std::memset(call.o.data<std::uint8_t>(), 0xFF, together.size() * 8);
  call.q.shape[0] = call.o.shape[0] = call.lengths.shape[0] = 1;
  call.args.lse = nullptr;
  for (std::int32_t b = 0; b < Sequences::kBatch; ++b) {
    OwnedTensor row = OwnedTensor::Indices({b});
    call.args.cache_batch_index = &row.abi;
    call.q.abi.byte_offset = call.o.abi.byte_offset =
        static_cast<std::uint64_t>(b) * 4 * Sequences::kDim * sizeof(float);
    call.lengths.abi.byte_offset = static_cast<std::uint64_t>(b) * sizeof(std::int32_t);
    ASSERT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
  }
  EXPECT_EQ(call.o.bytes(), together);
}

TEST(Decode, KeysMaskedFromEveryRowMayBeNaN) {
  Sequences call;
  OwnedTensor mask(kU8, {1, Sequences::kSlots}, 1);
  for (std::int64_t d = 0; d < Sequences::kDim; ++d) {
    call.KeyRow(0, 5, 0)[d] = call.ValueRow(0, 5, 0)[d] = std::numeric_limits<float>::quiet_NaN();
  }
  mask.data<std::uint8_t>()[5] = 0;
  call.score.mask = &mask.abi;
  ASSERT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
  for (std::int64_t d = 0; d < Sequences::kDim; ++d)
    EXPECT_TRUE(std::isfinite(call.Output(0, 0, d)));
}

TEST(Decode, NaNKeySpoilsItsRowsOnly) {
  for (const std::int64_t slot : {2, 650}) {
    Sequences call;
    call.KeyRow(0, slot, 1)[3] = std::numeric_limits<float>::quiet_NaN();
    ASSERT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
    for (std::int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(std::isnan(call.Output(0, head, 9)), head >= 2);
      EXPECT_EQ(std::isnan(call.lse.data<float>()[head]), head >= 2);
    }
    EXPECT_TRUE(std::isfinite(call.Output(1, 3, 9)));
  }
}

TEST(Decode, NothingToSee) {
  Sequences call;
  call.lengths.data<std::int32_t>()[2] = 0;
  ASSERT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
  for (std::int64_t head = 0; head < 4; ++head) {
    EXPECT_EQ(call.Output(2, head, 1), 0.0f);
    EXPECT_EQ(call.lse.data<float>()[8 + head], -std::numeric_limits<float>::infinity());
  }
  call.q.shape[0] = call.o.shape[0] = call.lengths.shape[0] = 0;
  call.args.lse = nullptr;
  EXPECT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
}

// Attention over rows that this test rotates and appends itself.
TEST(Decode, AppendsRotatedKeysAtTheCacheLength) {
  constexpr std::int64_t kPairs = 24;  // of 64 elements, the last 16 stay
  for (const heed_rotary_layout_t layout : {HEED_ROTARY_INTERLEAVED, HEED_ROTARY_HALF_SPLIT}) {
    Sequences call;
    OwnedTensor cos(kF32, {Sequences::kSlots, kPairs}), sin(kF32, {Sequences::kSlots, kPairs});
    for (std::int64_t p = 0; p < Sequences::kSlots; ++p) {
      for (std::int64_t n = 0; n < kPairs; ++n) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(n) / kPairs);
        cos.data<float>()[p * kPairs + n] = static_cast<float>(std::cos(angle));
        sin.data<float>()[p * kPairs + n] = static_cast<float>(std::sin(angle));
      }
    }
    const auto rotate = [&](float* row, std::int64_t position) {
      for (std::int64_t n = 0; n < kPairs; ++n) {
        const bool is_split = layout == HEED_ROTARY_HALF_SPLIT;
        float& x = row[is_split ? n : 2 * n];
        float& y = row[is_split ? n + kPairs : 2 * n + 1];
        const float c = cos.data<float>()[position * kPairs + n];
        const float s = sin.data<float>()[position * kPairs + n];
        const float turned = x * c - y * s;
        y = x * s + y * c;
        x = turned;
      }
    };
    // The expected result first: sequence 0, query head 3, which reads KV head 1.
    constexpr std::int64_t kLength = 700;
    std::vector<float> query(call.q.data<float>() + 3 * Sequences::kDim,
                             call.q.data<float>() + 4 * Sequences::kDim);
    rotate(query.data(), kLength);
    std::vector<double> weights, wanted(Sequences::kDim, 0.0);
    double sum = 0.0;
    for (std::int64_t key = 0; key <= kLength; ++key) {
      float row[Sequences::kDim];
      std::memcpy(row, key < kLength ? call.KeyRow(0, key, 1) : call.k_new.data<float>() + 64,
                  sizeof(row));
      if (key == kLength) rotate(row, kLength);
      double product = 0.0;
      for (std::int64_t d = 0; d < Sequences::kDim; ++d)
        product += double{query[static_cast<std::size_t>(d)]} * row[d];
      weights.push_back(std::exp(product / 8.0));
      sum += weights.back();
    }
    for (std::int64_t key = 0; key <= kLength; ++key) {
      const float* row = key < kLength ? call.ValueRow(0, key, 1) : call.v_new.data<float>() + 64;
      for (std::size_t d = 0; d < wanted.size(); ++d) {
        wanted[d] += weights[static_cast<std::size_t>(key)] / sum * row[d];
      }
    }
    call.args.k_new = &call.k_new.abi;
    call.args.v_new = &call.v_new.abi;
    call.args.rotary_cos = &cos.abi;
    call.args.rotary_sin = &sin.abi;
    call.args.rotary_layout = layout;
    for (const heed_backend_t backend : {HEED_BACKEND_CPU, HEED_BACKEND_REFERENCE}) {
      call.exec.backend = backend;
      ASSERT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
      for (std::size_t d = 0; d < wanted.size(); ++d) {
        EXPECT_NEAR(call.Output(0, 3, static_cast<std::int64_t>(d)), wanted[d], 2e-6);
      }
      EXPECT_NEAR(call.lse.data<float>()[3], std::log(sum), 2e-6);
    }
    EXPECT_EQ(call.lengths.data<std::int32_t>()[0], kLength) << "the caller's lengths stay";
  }
}

// As the latent vectors of MLA do: values are columns of the keys. With an append both would be
// written in one place.
TEST(Decode, ReadsCachesThatShareMemory) {
  Sequences call;
  constexpr std::int64_t kColumns = 40;
  OwnedTensor o(kF32, {call.o.shape[0], call.o.shape[1], call.o.shape[2], kColumns}, 0xFF);
  OwnedTensor apart(kF32, {call.o.shape[0], call.o.shape[1], call.o.shape[2], kColumns}, 0xFF);
  std::int64_t shape[4];
  std::copy_n(call.args.k_cache->shape, 4, shape);
  shape[3] = kColumns;
  heed_tensor_t values = *call.args.k_cache;
  values.shape = shape;
  // The oracle's own copy of these columns.
  heed_tensor_t copied = *call.args.v_cache;
  copied.shape = shape;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t slot = 0; slot < shape[1]; ++slot) {
      for (std::int64_t head = 0; head < shape[2]; ++head) {
        std::copy_n(call.KeyRow(b, slot, head), kColumns, call.ValueRow(b, slot, head));
      }
    }
  }
  call.args.v_cache = &copied;
  call.args.o = &apart.abi;
  ASSERT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
  call.args.v_cache = &values;
  call.args.o = &o.abi;
  ASSERT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
  EXPECT_EQ(o.bytes(), apart.bytes());
  call.v_new.shape[3] = kColumns;
  call.args.k_new = &call.k_new.abi;
  call.args.v_new = &call.v_new.abi;
  EXPECT_EQ(heed_decode(&call.args), HEED_INVALID_ARGUMENT);
  EXPECT_NE(std::string(heed_last_error()).find("must not overlap"), std::string::npos)
      << heed_last_error();
}

// Threads that decode at the same time share nothing.
TEST(Decode, ManyCallersAtOnce) {
  Sequences alone;
  ASSERT_EQ(heed_decode(&alone.args), HEED_OK);
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&] {
      Sequences call;
      call.exec.num_threads = 2;
      EXPECT_EQ(heed_decode(&call.args), HEED_OK);
      EXPECT_EQ(call.o.bytes(), alone.o.bytes());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace heed::test
