// heed_combine and heed_dropout_mask on the GPU beside the oracle on the host.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "gpu/device_copy.h"
#include "support/random.h"
#include "support/strided_tensor.h"

namespace heed::test {
namespace {

constexpr std::int64_t kParts = 5, kBatch = 2, kRows = 37, kHeads = 3, kDim = 40;

struct CombineCall {
  explicit CombineCall(Element element)
      : o_partial(Element::kF32, {kParts, kBatch, kRows, kHeads, kDim}),
        lse_partial(Element::kF32, {kParts, kBatch, kHeads, kRows}),
        sinks(Element::kF32, {kHeads}),
        o(element, {kBatch, kRows, kHeads, kDim}),
        lse(Element::kF32, {kBatch, kHeads, kRows}) {
    Random random(3, "combine");
    o_partial.Fill([&](const Indices&) { return random.Normal(); });
    // Some parts are empty: their values must not matter, NaN included.
    lse_partial.Fill([&](const Indices& at) {
      return (at[0] + at[3]) % 3 == 0 || at[3] == 5 ? -std::numeric_limits<double>::infinity()
                                                    : 4.0 * random.Normal();
    });
    sinks.Fill([&](const Indices&) { return random.Normal(); });
    ForEachIndex(o_partial.shape(), [&](const Indices& at) {
      if (std::isinf(lse_partial.At({at[0], at[1], at[3], at[2]}))) {
        o_partial.SetPoison(at, Poison::kNaN);
      }
    });
  }
  StridedTensor o_partial, lse_partial, sinks, o, lse;
};

void CheckCombine(Element element, bool with_sinks, double bound) {
  CombineCall call(element);
  heed_combine_args_t args = HEED_COMBINE_ARGS_INIT;
  args.o_partial = call.o_partial.abi();
  args.lse_partial = call.lse_partial.abi();
  args.sinks = with_sinks ? call.sinks.abi() : nullptr;
  args.o = call.o.abi();
  args.lse = call.lse.abi();
  ASSERT_EQ(heed_combine(&args), HEED_OK) << heed_last_error();
  std::vector<double> expected_o, expected_lse;
  ForEachIndex(call.o.shape(), [&](const Indices& at) { expected_o.push_back(call.o.At(at)); });
  ForEachIndex(call.lse.shape(),
               [&](const Indices& at) { expected_lse.push_back(call.lse.At(at)); });
  call.o.PoisonAll(Poison::kNaN);
  call.lse.PoisonAll(Poison::kNaN);
  DeviceCopy o_partial(*args.o_partial), lse_partial(*args.lse_partial), o(*args.o), lse(*args.lse);
  DeviceCopy sinks(*call.sinks.abi());
  heed_combine_args_t on_device = args;
  on_device.o_partial = o_partial.tensor();
  on_device.lse_partial = lse_partial.tensor();
  on_device.sinks = with_sinks ? sinks.tensor() : nullptr;
  on_device.o = o.tensor();
  on_device.lse = lse.tensor();
  ASSERT_EQ(heed_combine(&on_device), HEED_OK) << heed_last_error();
  Cuda::Get().Synchronize();
  o.CopyBack();
  lse.CopyBack();
  EXPECT_EQ(o.DescribeDamage() + lse.DescribeDamage(), "");
  std::size_t next = 0;
  ForEachIndex(call.o.shape(), [&](const Indices& at) {
    const double expected = expected_o[next++];
    ASSERT_NEAR(call.o.At(at), expected, bound * (1.0 + std::abs(expected))) << ToString(at);
  });
  next = 0;
  ForEachIndex(call.lse.shape(), [&](const Indices& at) {
    const double expected = expected_lse[next++];
    if (std::isinf(expected)) {
      ASSERT_EQ(call.lse.At(at), expected) << ToString(at);
    } else {
      ASSERT_NEAR(call.lse.At(at), expected, 1e-5) << ToString(at);
    }
  });
}

TEST(GpuCombine, MatchesTheOracle) {
  for (const bool with_sinks : {false, true}) {
    CheckCombine(Element::kF32, with_sinks, 2e-6);
    CheckCombine(Element::kF16, with_sinks, 0x1p-10);
    CheckCombine(Element::kBF16, with_sinks, 0x1p-7);
  }
}

TEST(GpuDropoutMask, HasTheBitsOfTheOracle) {
  StridedTensor mask(Element::kU8, {2, 3, 70, 301});
  heed_dropout_mask_args_t args = HEED_DROPOUT_MASK_ARGS_INIT;
  args.mask = mask.abi();
  args.dropout_p = 0.3;
  args.dropout_seed = 0x123456789abcdef0u;
  args.dropout_offset = 0xfedcba9876543210u;
  ASSERT_EQ(heed_dropout_mask(&args), HEED_OK) << heed_last_error();
  std::vector<double> expected;
  ForEachIndex(mask.shape(), [&](const Indices& at) { expected.push_back(mask.At(at)); });
  ForEachIndex(mask.shape(), [&](const Indices& at) { mask.Set(at, 7.0); });
  DeviceCopy copy(*mask.abi());
  args.mask = copy.tensor();
  ASSERT_EQ(heed_dropout_mask(&args), HEED_OK) << heed_last_error();
  Cuda::Get().Synchronize();
  copy.CopyBack();
  EXPECT_EQ(copy.DescribeDamage(), "");
  std::size_t next = 0;
  ForEachIndex(mask.shape(), [&](const Indices& at) {
    ASSERT_EQ(mask.At(at), expected[next++]) << ToString(at);
  });
}

}  // namespace
}  // namespace heed::test
