// A program that knows flash_attention_fused_v2.h alone.
#include "flash_attention_fused_v2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "heed/heed.h"
#include "support/emulated.h"

namespace {

std::vector<int8_t> RandomBytes(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int8_t> bytes(static_cast<std::size_t>(count));
  for (int8_t& x : bytes) x = static_cast<int8_t>(static_cast<int>(random() % 32) - 16);
  return bytes;
}

// An emulator and instrumented kernels take a minute for the longest ones.
std::vector<std::int64_t> Lengths() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return {64, 512};
#else
  if (heed::test::IsEmulated()) return {64, 200};
  return {64, 512, 2048, 8192};
#endif
}

// Largest |O - exact attention| of the rows first, first + step, ...
double WorstError(const std::vector<int8_t> (&qkv)[3], const float* o, std::int64_t length,
                  std::int64_t head_dim, std::int64_t step) {
  double worst = 0.0;
  for (std::int64_t i = 0; i < length; i += step) {
    std::vector<double> p(static_cast<std::size_t>(length));
    double max = -INFINITY, sum = 0.0;
    for (std::int64_t j = 0; j < length; ++j) {
      std::int64_t dot = 0;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        dot += qkv[0][static_cast<std::size_t>(i * head_dim + d)] *
               qkv[1][static_cast<std::size_t>(j * head_dim + d)];
      }
      p[static_cast<std::size_t>(j)] =
          static_cast<double>(dot) / std::sqrt(static_cast<double>(head_dim));
      max = std::fmax(max, p[static_cast<std::size_t>(j)]);
    }
    for (double& x : p) sum += x = std::exp(x - max);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      double exact = 0.0;
      for (std::int64_t j = 0; j < length; ++j) {
        exact +=
            p[static_cast<std::size_t>(j)] * qkv[2][static_cast<std::size_t>(j * head_dim + d)];
      }
      const double off = std::abs(o[i * head_dim + d] - exact / sum);
      if (!(off <= worst)) worst = off;
    }
  }
  return worst;
}

TEST(FlashAttentionFusedV2, IsWithinOneOfExactAttention) {
  for (const std::int64_t length : Lengths()) {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      const std::int64_t count = length * head_dim;
      const std::vector<int8_t> qkv[3] = {RandomBytes(count, 1), RandomBytes(count, 2),
                                          RandomBytes(count, 3)};
      const std::unique_ptr<void, void (*)(void*)> block(
          flash_aligned_alloc(static_cast<std::size_t>(count) * sizeof(float)), flash_aligned_free);
      auto* o = static_cast<float*>(block.get());
      ASSERT_NE(o, nullptr);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(o) % 64, 0u);
      flash_attention_fused_forward(qkv[0].data(), qkv[1].data(), qkv[2].data(), o, nullptr, length,
                                    head_dim);
      const std::int64_t step = length <= 512 ? 1 : length / 16 + 1;
      EXPECT_LE(WorstError(qkv, o, length, head_dim, step), 1.0) << length << " x " << head_dim;
    }
  }
}

TEST(FlashAttentionFusedV2, PackedCallsHaveTheSameBits) {
  for (const std::int64_t length : {1, 64, 130}) {
    for (const std::int64_t head_dim : {6, 64, 80}) {
      const std::int64_t count = length * head_dim;
      const std::vector<int8_t> q = RandomBytes(count, 4), k = RandomBytes(count, 5),
                                v = RandomBytes(count, 6);
      std::vector<int8_t> kp(flash_kp_size(length, head_dim), 99);
      std::vector<int8_t> vp(flash_vp_size(length, head_dim), 99);
      pack_k_for_flash_attention(k.data(), kp.data(), length, head_dim);
      pack_v_for_flash_attention(v.data(), vp.data(), length, head_dim);
      const auto elems = static_cast<std::size_t>(count), rows = static_cast<std::size_t>(length);
      std::vector<float> o(elems), packed_o(elems), lse(rows), packed_lse(rows);
      flash_attention_fused_forward(q.data(), k.data(), v.data(), o.data(), lse.data(), length,
                                    head_dim);
      flash_attention_fused_forward_packed(q.data(), kp.data(), vp.data(), packed_o.data(),
                                           packed_lse.data(), length, head_dim);
      EXPECT_EQ(std::memcmp(o.data(), packed_o.data(), elems * sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(lse.data(), packed_lse.data(), rows * sizeof(float)), 0);
    }
  }
}

TEST(FlashAttentionFusedV2, PackedBytesLieWhereTheHeaderSays) {
  const std::int64_t length = 70, head_dim = 67;
  EXPECT_EQ(flash_kp_size(length, head_dim), 2u * 17u * 256u);
  EXPECT_EQ(flash_vp_size(length, head_dim), 2u * 18u * 256u);
  const std::vector<int8_t> x = RandomBytes(length * head_dim, 8);
  std::vector<int8_t> kp(flash_kp_size(length, head_dim), 99), expected_k(kp.size(), 0);
  std::vector<int8_t> vp(flash_vp_size(length, head_dim), 99), expected_v(vp.size(), 0);
  for (std::int64_t j = 0; j < length; ++j) {
    for (std::int64_t d = 0; d < head_dim; ++d) {
      const int8_t byte = x[static_cast<std::size_t>(j * head_dim + d)];
      expected_k[static_cast<std::size_t>(((j / 64 * 17 + d / 4) * 64 + j % 64) * 4 + d % 4)] =
          byte;
      expected_v[static_cast<std::size_t>(((d / 64 * 18 + j / 4) * 64 + d % 64) * 4 + j % 4)] =
          byte;
    }
  }
  pack_k_for_flash_attention(x.data(), kp.data(), length, head_dim);
  pack_v_for_flash_attention(x.data(), vp.data(), length, head_dim);
  EXPECT_EQ(kp, expected_k);
  EXPECT_EQ(vp, expected_v);
}

TEST(FlashAttentionFusedV2, CallsThatCannotRunGiveNaNAndSayWhy) {
  const std::vector<int8_t> q(64, 1);
  std::vector<float> o(64, 5.0f), lse(4, 5.0f);
  flash_attention_fused_forward(q.data(), nullptr, q.data(), o.data(), lse.data(), 4, 16);
  for (const float x : o) EXPECT_TRUE(std::isnan(x));
  for (const float x : lse) EXPECT_TRUE(std::isnan(x));
  EXPECT_NE(std::string(heed_last_error()).find("K = NULL"), std::string::npos);

  lse.assign(4, 5.0f);
  flash_attention_fused_forward(q.data(), q.data(), q.data(), o.data(), lse.data(), 4, 0);
  EXPECT_TRUE(std::isnan(lse[0]));
  EXPECT_NE(std::string(heed_last_error()).find("head_dim = 0"), std::string::npos);

  o.assign(64, 5.0f);
  flash_attention_fused_forward(q.data(), q.data(), q.data(), o.data(), nullptr, 0, 16);
  EXPECT_EQ(o[0], 5.0f);

  ASSERT_EQ(setenv("HEED_CPU_TARGET", "nonsense", 1), 0);
  flash_attention_fused_forward(q.data(), q.data(), q.data(), o.data(), nullptr, 4, 16);
  ASSERT_EQ(unsetenv("HEED_CPU_TARGET"), 0);
  EXPECT_TRUE(std::isnan(o[0]));
  EXPECT_NE(std::string(heed_last_error()).find("nonsense"), std::string::npos);
}

}  // namespace
