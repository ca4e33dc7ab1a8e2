// heed_quantize_kv: what it writes, and how far from the source. The numbers that a payload stands
// for are worked out here once more.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "decode/decode_case.h"
#include "decode/payload.h"
#include "support/random.h"
// After the enumerators that its constants are named as.
#include "api/owned_tensor.h"

namespace heed::test {
namespace {

struct Format {
  heed_kv_format_t format;
  heed_kv_layout_t layout;
  std::int64_t groups;  // of scales; 0 = in the payload
  std::int64_t elems;   // payload of 40 numbers
  double limit;         // of the payload
  double half_step;     // largest error, in scales (fp8: relative to the largest number)
};

constexpr Format kFormats[] = {
    {HEED_KV_INT8, HEED_KV_LAYOUT_ROWS, 1, 40, 127, 0.5},
    {HEED_KV_INT8, HEED_KV_LAYOUT_ROWS, 5, 40, 127, 0.5},
    {HEED_KV_INT8, HEED_KV_LAYOUT_INTERLEAVED, 1, 40, 127, 0.5},
    {HEED_KV_FP8_E4M3, HEED_KV_LAYOUT_ROWS, 2, 40, 448, 16},  // half of 2^5 between 256 and 448
    {HEED_KV_INT4, HEED_KV_LAYOUT_ROWS, 4, 20, 7, 0.5},
    {HEED_KV_Q8_0, HEED_KV_LAYOUT_ROWS, 0, 68, 127, 0.5},
    {HEED_KV_Q4_0, HEED_KV_LAYOUT_ROWS, 0, 36, 8, 1.0},  // +8 is not there: 7 stands in
};

struct Call {
  static constexpr std::int64_t kSlots = 32, kHeads = 2, kDim = 40;

  explicit Call(const Format& of)
      : payload(kU8, {2, kSlots, kHeads, of.elems}, 0xFF),
        scales(kF32, {2, kSlots, kHeads, std::max<std::int64_t>(1, of.groups)}, 0xFF),
        format(of) {
    Random random(3, "source");
    for (std::int64_t i = 0; i < 2 * kSlots * kHeads * kDim; ++i) {
      source.data<float>()[i] = static_cast<float>(random.Normal());
    }
    args.source = &source.abi;
    args.payload = &payload.abi;
    if (format.groups > 0) args.scales = &scales.abi;
    args.format = format.format;
    args.layout = format.layout;
    args.exec = &exec;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  float* Source(std::int64_t slot, std::int64_t head) {
    return source.data<float>() + (slot * kHeads + head) * kDim;
  }
  std::uint8_t* Payload(std::int64_t slot, std::int64_t head) {
    return payload.data<std::uint8_t>() + (slot * kHeads + head) * format.elems;
  }
  double Scale(std::int64_t slot, std::int64_t head, std::int64_t d) {
    if (format.groups > 0) {
      return scales
          .data<float>()[(slot * kHeads + head) * format.groups + d / (kDim / format.groups)];
    }
    const std::int64_t block_bytes = format.format == HEED_KV_Q8_0 ? 34 : 18;
    return LoadElement(Element::kF16, Payload(slot, head) + d / 32 * block_bytes);
  }
  double Number(std::int64_t slot, std::int64_t head, std::int64_t d) {
    if (format.layout == HEED_KV_LAYOUT_ROWS) {
      return PayloadNumber(format.format, Payload(slot, head), d);
    }
    const std::int64_t byte = d / 4 * 64 + slot % 16 * 4 + d % 4;
    return static_cast<std::int8_t>(
        Payload(slot / 16 * 16 + byte / format.elems, head)[byte % format.elems]);
  }

  OwnedTensor source{kF32, {2, kSlots, kHeads, kDim}};
  OwnedTensor payload, scales;
  Format format;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_quantize_kv_args_t args = HEED_QUANTIZE_KV_ARGS_INIT;
};

TEST(QuantizeKv, RoundsToNearest) {
  for (const Format& format : kFormats) {
    SCOPED_TRACE(testing::Message() << "format " << format.format << " layout " << format.layout);
    Call call(format);
    ASSERT_EQ(heed_quantize_kv(&call.args), HEED_OK) << heed_last_error();
    for (std::int64_t slot = 0; slot < 2 * Call::kSlots; ++slot) {
      for (std::int64_t d = 0; d < Call::kDim; ++d) {
        const double scale = call.Scale(slot, 1, d);
        const double number = call.Number(slot, 1, d);
        EXPECT_LE(std::abs(number), format.limit);
        // 2^-10: what the rounding of an fp16 scale adds at the limit, in steps.
        EXPECT_NEAR(number * scale, call.Source(slot, 1)[d],
                    std::abs(scale) * (format.half_step + format.limit * 0x1p-10));
      }
    }
  }
}

TEST(QuantizeKv, ScaleIsTheLargestMagnitudeOverTheLimit) {
  Call call(kFormats[1]);
  ASSERT_EQ(heed_quantize_kv(&call.args), HEED_OK) << heed_last_error();
  for (std::int64_t group = 0; group < 5; ++group) {
    float largest = 0.0f;
    for (std::int64_t d = 0; d < 8; ++d) {
      largest = std::max(largest, std::fabs(call.Source(3, 1)[group * 8 + d]));
    }
    EXPECT_EQ(call.Scale(3, 1, group * 8), double{largest / 127.0f});
  }
}

TEST(QuantizeKv, SameBytesOnEveryBackendAndNumberOfThreads) {
  for (const Format& format : kFormats) {
    Call one(format), three(format), reference(format);
    one.exec.num_threads = 1;
    three.exec.num_threads = 3;
    reference.exec.backend = HEED_BACKEND_REFERENCE;
    for (Call* call : {&one, &three, &reference}) {
      ASSERT_EQ(heed_quantize_kv(&call->args), HEED_OK) << heed_last_error();
    }
    EXPECT_EQ(one.payload.bytes(), three.payload.bytes());
    EXPECT_EQ(one.scales.bytes(), three.scales.bytes());
    EXPECT_EQ(one.payload.bytes(), reference.payload.bytes());
    EXPECT_EQ(one.scales.bytes(), reference.scales.bytes());
  }
}

TEST(QuantizeKv, ZerosAndNumbersThatNoPayloadHolds) {
  for (const Format& format : kFormats) {
    SCOPED_TRACE(testing::Message() << "format " << format.format);
    Call call(format);
    std::memset(call.Source(0, 0), 0, Call::kDim * sizeof(float));
    call.Source(1, 0)[2] = std::numeric_limits<float>::quiet_NaN();
    call.Source(2, 0)[2] = -std::numeric_limits<float>::infinity();
    ASSERT_EQ(heed_quantize_kv(&call.args), HEED_OK) << heed_last_error();
    for (std::int64_t d = 0; d < Call::kDim; ++d) {
      EXPECT_EQ(call.Scale(0, 0, d) * call.Number(0, 0, d), 0.0);
    }
    for (const std::int64_t slot : {1, 2}) EXPECT_TRUE(std::isnan(call.Scale(slot, 0, 2)));
    EXPECT_TRUE(std::isfinite(call.Scale(1, 1, 2)));
  }
}

}  // namespace
}  // namespace heed::test
