// What quantising costs: attention over int8 tensors against exact attention over the numbers that
// they were rounded from. The table of docs/numerics.md; each limit is its number and a tenth.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "api/owned_tensor.h"
#include "heed/heed.h"

namespace heed::test {
namespace {

constexpr std::int64_t kRows = 1024, kDims = 64;

struct Inputs {
  std::vector<double> q, k, v;  // [kRows][kDims]
};

// N(0, 1), and a constant of each channel added to K, as activations of real models have.
Inputs Draw(double offset_of_k) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  Inputs inputs;
  for (auto* tensor : {&inputs.q, &inputs.k, &inputs.v}) {
    for (std::int64_t n = 0; n < kRows * kDims; ++n) tensor->push_back(normal(random));
  }
  std::vector<double> offset;
  for (std::int64_t d = 0; d < kDims; ++d) offset.push_back(offset_of_k * normal(random));
  for (std::int64_t n = 0; n < kRows * kDims; ++n) {
    inputs.k[static_cast<std::size_t>(n)] += offset[static_cast<std::size_t>(n % kDims)];
  }
  return inputs;
}

std::vector<double> ExactOutput(const Inputs& inputs) {
  std::vector<double> o(static_cast<std::size_t>(kRows * kDims), 0.0);
  for (std::int64_t i = 0; i < kRows; ++i) {
    std::vector<double> p;
    double max = -INFINITY, sum = 0.0;
    for (std::int64_t j = 0; j < kRows; ++j) {
      double s = 0.0;
      for (std::int64_t d = 0; d < kDims; ++d) {
        s += inputs.q[static_cast<std::size_t>(i * kDims + d)] *
             inputs.k[static_cast<std::size_t>(j * kDims + d)];
      }
      p.push_back(s / std::sqrt(static_cast<double>(kDims)));
      max = std::max(max, p.back());
    }
    for (double& x : p) sum += x = std::exp(x - max);
    for (std::int64_t j = 0; j < kRows; ++j) {
      for (std::int64_t d = 0; d < kDims; ++d) {
        o[static_cast<std::size_t>(i * kDims + d)] +=
            p[static_cast<std::size_t>(j)] / sum *
            inputs.v[static_cast<std::size_t>(j * kDims + d)];
      }
    }
  }
  return o;
}

// The softmax does not see a constant added to all keys.
void SubtractMeans(std::vector<double>* k) {
  for (std::int64_t d = 0; d < kDims; ++d) {
    double mean = 0.0;
    for (std::int64_t j = 0; j < kRows; ++j) mean += (*k)[static_cast<std::size_t>(j * kDims + d)];
    mean /= kRows;
    for (std::int64_t j = 0; j < kRows; ++j) (*k)[static_cast<std::size_t>(j * kDims + d)] -= mean;
  }
}

// block_rows rows share a scale; 0: each channel has its own.
void Quantise(const std::vector<double>& from, std::int64_t block_rows, OwnedTensor* bytes,
              OwnedTensor* scales) {
  const auto scale_of = [&](std::int64_t row, std::int64_t d) {
    return block_rows == 0 ? d : row / block_rows;
  };
  for (std::int64_t pass = 0; pass < 2; ++pass) {
    for (std::int64_t n = 0; n < kRows * kDims; ++n) {
      float* scale = scales->data<float>() + scale_of(n / kDims, n % kDims);
      const double x = from[static_cast<std::size_t>(n)];
      if (pass == 0) {
        *scale = std::max(*scale, static_cast<float>(std::abs(x) / 127.0));
      } else {
        const double rounded = std::nearbyint(x / static_cast<double>(*scale));
        bytes->data<std::int8_t>()[n] =
            static_cast<std::int8_t>(std::clamp(rounded, -127.0, 127.0));
      }
    }
  }
}

struct Setting {
  const char* name;
  std::int64_t qk_block, v_block;
  heed_int8_values_t values;
  double limit;  // of the relative Frobenius error
};

double ErrorOf(const Inputs& inputs, const std::vector<double>& exact, const Setting& setting) {
  const auto scales = [](std::int64_t block) {
    return OwnedTensor(kF32, {1, 1, block == 0 ? kDims : kRows / block});
  };
  OwnedTensor q(kI8, {1, kRows, 1, kDims}), k(kI8, {1, kRows, 1, kDims}),
      v(kI8, {1, kRows, 1, kDims}), o(kF32, {1, kRows, 1, kDims});
  OwnedTensor q_scales = scales(setting.qk_block), k_scales = scales(setting.qk_block),
              v_scales = scales(setting.v_block);
  Quantise(inputs.q, setting.qk_block, &q, &q_scales);
  Quantise(inputs.k, setting.qk_block, &k, &k_scales);
  Quantise(inputs.v, setting.v_block, &v, &v_scales);
  heed_int8_args_t int8 = HEED_INT8_ARGS_INIT;
  int8.q_scales = &q_scales.abi;
  int8.k_scales = &k_scales.abi;
  int8.v_scales = &v_scales.abi;
  int8.q_block_rows = int8.k_block_rows = setting.qk_block;
  int8.v_block_rows = setting.v_block;
  int8.values = setting.values;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  args.q = &q.abi;
  args.k = &k.abi;
  args.v = &v.abi;
  args.o = &o.abi;
  args.int8 = &int8;
  EXPECT_EQ(heed_forward(&args), HEED_OK) << heed_last_error();
  double error = 0.0, norm = 0.0;
  for (std::size_t n = 0; n < exact.size(); ++n) {
    error += std::pow(static_cast<double>(o.data<float>()[n]) - exact[n], 2);
    norm += exact[n] * exact[n];
  }
  return std::sqrt(error / norm);
}

void ExpectBelow(const char* data, const Inputs& inputs, const std::vector<double>& exact,
                 const Setting& setting) {
  const double error = ErrorOf(inputs, exact, setting);
  std::printf("%-28s %-44s %.2e\n", data, setting.name, error);
  EXPECT_LE(error, setting.limit) << data << ", " << setting.name;
}

TEST(Int8Accuracy, OfNormalData) {
  const Inputs inputs = Draw(0.0);
  const std::vector<double> exact = ExactOutput(inputs);
  const Setting settings[] = {
      {"q, k per token, v per channel, P fp32", 1, 0, HEED_INT8_VALUES_F32, 1.27e-2},
      {"q, k per token, v per token, P fp32", 1, 1, HEED_INT8_VALUES_F32, 1.13e-2},
      {"q, k per block of 64, v per channel, P fp32", 64, 0, HEED_INT8_VALUES_F32, 1.58e-2},
      {"q, k per token, v per channel, P bf16", 1, 0, HEED_INT8_VALUES_BF16, 1.27e-2},
      {"q, k per token, v per channel, P u8", 1, 0, HEED_INT8_VALUES_U8, 1.75e-2},
      {"q, k per token, v per token, P u8", 1, 1, HEED_INT8_VALUES_U8, 2.16e-2},
  };
  for (const Setting& setting : settings) ExpectBelow("N(0, 1)", inputs, exact, setting);
}

TEST(Int8Accuracy, SubtractingTheMeanOfKeysKeepsTheirScalesSmall) {
  Inputs inputs = Draw(8.0);
  const std::vector<double> exact = ExactOutput(inputs);
  const Setting setting = {"q, k per token, v per channel, P fp32", 1, 0, HEED_INT8_VALUES_F32,
                           1.27e-2};
  const double plain = ErrorOf(inputs, exact, setting);
  std::printf("%-28s %-44s %.2e\n", "K + 8 N(0, 1) per channel", setting.name, plain);
  SubtractMeans(&inputs.k);
  ExpectBelow("the same, means subtracted", inputs, exact, setting);
  EXPECT_GT(plain, 3.0 * ErrorOf(inputs, exact, setting));
}

}  // namespace
}  // namespace heed::test
