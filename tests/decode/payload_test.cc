// Every byte that a quantised cache may hold, as keys and as values, in every decode row that can
// run here: one key, so that o is its value and lse its score.
#include "decode/payload.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "decode/decode_instance.h"

namespace heed::test {
namespace {

struct Format {
  heed_kv_format_t format;
  std::int64_t head_dim;     // with as many elements as show every byte
  std::int64_t block_elems;  // 0 = no scales in the payload
  std::int64_t block_bytes;
  std::int64_t elems_of_byte;
};
constexpr Format kFormats[] = {{HEED_KV_INT8, 256, 0, 0, 1},
                               {HEED_KV_FP8_E4M3, 256, 0, 0, 1},
                               {HEED_KV_INT4, 512, 0, 0, 2},
                               {HEED_KV_Q8_0, 256, 32, 34, 1},
                               {HEED_KV_Q4_0, 512, 32, 18, 2}};
// Scales of blocks as fp16 bits: ordinary ones, the least subnormal, zero, the largest.
constexpr std::array<std::uint16_t, 8> kBlockScales = {0x3C00, 0x2E66, 0xB555, 0x0001,
                                                       0x0000, 0x7BFF, 0x0401, 0x1234};
constexpr float kKeyScale = 0.375f, kValueScale = -1.7f;

// One sequence of one key of one KV head. Query head h looks at element h of the key alone.
struct OneKey {
  explicit OneKey(const Format& of)
      : format(of),
        head_dim(of.head_dim),
        row_bytes(of.block_elems > 0 ? of.head_dim / of.block_elems * of.block_bytes
                                     : of.head_dim / of.elems_of_byte),
        q(kF32, {1, 1, head_dim, head_dim}),
        k(kU8, {1, 1, 1, row_bytes}),
        v(kU8, {1, 1, 1, row_bytes}),
        o(kF32, {1, 1, head_dim, head_dim}, 0xFF),
        lse(kF32, {1, head_dim, 1}, 0xFF) {
    for (std::int64_t h = 0; h < head_dim; ++h) q.data<float>()[h * head_dim + h] = 1.0f;
    FillRow(k.data<std::uint8_t>(), 0);
    FillRow(v.data<std::uint8_t>(), 99);
    // A NaN would spoil the score of every head.
    for (std::int64_t d = 0; d < row_bytes && format.format == HEED_KV_FP8_E4M3; ++d) {
      std::uint8_t& byte = k.data<std::uint8_t>()[d];
      if ((byte & 0x7F) == 0x7F) byte = 0;
    }
    k_scales.data<float>()[0] = kKeyScale;
    v_scales.data<float>()[0] = kValueScale;
    quant.format = format.format;
    if (format.block_elems == 0) {
      quant.k_scales = &k_scales.abi;
      quant.v_scales = &v_scales.abi;
    }
    score.scale = &scale;
    args.q = &q.abi;
    args.k_cache = &k.abi;
    args.v_cache = &v.abi;
    args.o = &o.abi;
    args.lse = &lse.abi;
    args.cache_lengths = &lengths.abi;
    args.quant = &quant;
    args.score = &score;
    args.exec = &exec;
  }
  OneKey(const OneKey&) = delete;
  OneKey& operator=(const OneKey&) = delete;

  // Bytes in turn from `first` on; scales of blocks in turn.
  void FillRow(std::uint8_t* row, int first) {
    for (std::int64_t n = 0, byte = first; n < row_bytes; ++n) {
      const std::int64_t in_block = format.block_elems > 0 ? n % format.block_bytes : 2;
      if (in_block < 2) {
        const auto block = static_cast<std::size_t>(n / format.block_bytes);
        const std::uint16_t bits = kBlockScales[block % kBlockScales.size()];
        row[n] = static_cast<std::uint8_t>(in_block == 0 ? bits : bits >> 8);
      } else {
        row[n] = static_cast<std::uint8_t>(byte++);
      }
    }
  }
  double Number(const std::uint8_t* row, std::int64_t d, float row_scale) const {
    const double payload = PayloadNumber(format.format, row, d);
    if (format.block_elems == 0) return payload * double{row_scale};
    return payload * LoadElement(Element::kF16, row + d / format.block_elems * format.block_bytes);
  }

  Format format;
  std::int64_t head_dim, row_bytes;
  OwnedTensor q, k, v, o, lse;
  OwnedTensor k_scales{kF32, {1, 1, 1, 1}}, v_scales{kF32, {1, 1, 1, 1}};
  OwnedTensor lengths = OwnedTensor::Indices({1});
  double scale = 1.0;
  heed_kv_quant_args_t quant = HEED_KV_QUANT_ARGS_INIT;
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
};

TEST(Decode, EveryPayloadByte) {
  for (const Format& format : kFormats) {
    OneKey call(format);
    const std::uint8_t *keys = call.k.data<std::uint8_t>(), *values = call.v.data<std::uint8_t>();
    for (const std::string& row : DecodeRowsHere()) {
      SCOPED_TRACE(testing::Message() << "format " << format.format << ", " << row);
      call.exec.kernel = row.c_str();
      ASSERT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
      for (std::int64_t d = 0; d < call.head_dim; ++d) {
        const double score = call.Number(keys, d, kKeyScale);
        EXPECT_NEAR(call.lse.data<float>()[d], score, 3e-7 * std::fabs(score)) << "key " << d;
        const double value = call.Number(values, d, kValueScale);
        // Of the first head and of another one.
        for (const std::int64_t head : {std::int64_t{0}, call.head_dim - 3}) {
          const float got = call.o.data<float>()[head * call.head_dim + d];
          if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(got)) << "value " << d << " is " << got;
          } else {
            EXPECT_EQ(got, static_cast<float>(value)) << "value " << d;
          }
        }
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace heed::test
