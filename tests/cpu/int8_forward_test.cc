// The int8 kernels: every target and number of threads against a scalar model bit by bit, and
// against exact attention within the bound of docs/numerics.md.
#include "cpu/int8_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/os/os.h"
#include "cpu/denormals.h"
#include "cpu/int8_pack.h"
#include "cpu/int8_softmax.h"
#include "support/tested_targets.h"

namespace heed::cpu {
namespace {

struct Shape {
  std::int64_t length, head_dim;
  int low, high;  // of the elements
};

struct Tensors {
  Shape shape;
  std::vector<std::int8_t> q, k, v, packed_k, packed_v;
};

void Pack(Tensors* tensors) {
  const auto [length, head_dim, low, high] = tensors->shape;
  PackInt8Keys({tensors->k.data(), head_dim, length, head_dim}, 0, length,
               tensors->packed_k.data());
  PackInt8Values({tensors->v.data(), head_dim, length, head_dim}, 0, length,
                 tensors->packed_v.data());
}

Tensors MakeTensors(const Shape& shape, unsigned seed) {
  Tensors tensors{shape, {}, {}, {}, {}, {}};
  std::mt19937 random(seed);
  const auto count = static_cast<std::size_t>(shape.length * shape.head_dim);
  for (auto* tensor : {&tensors.q, &tensors.k, &tensors.v}) {
    tensor->resize(count);
    for (auto& x : *tensor) {
      const auto span = static_cast<unsigned>(shape.high - shape.low + 1);
      x = static_cast<std::int8_t>(shape.low + static_cast<int>(random() % span));
    }
  }
  tensors.packed_k.resize(PackedInt8KeysBytes(shape.length, shape.head_dim));
  tensors.packed_v.resize(PackedInt8ValuesBytes(shape.length, shape.head_dim));
  Pack(&tensors);
  return tensors;
}

struct Result {
  std::vector<float> o, lse;
};

Result RunOn(const Int8Kernel& kernel, const Tensors& tensors, int num_threads) {
  const Shape& shape = tensors.shape;
  Result result;
  result.o.assign(static_cast<std::size_t>(shape.length * shape.head_dim), NAN);
  result.lse.assign(static_cast<std::size_t>(shape.length), NAN);
  // Packed tensors are steps; other kernels pack for themselves.
  const bool reads_steps = kernel.key_format == Int8KeyFormat::kSteps;
  const core::ForwardProblem problem =
      MakeInt8Problem({tensors.q.data(), reads_steps ? nullptr : tensors.k.data(),
                       reads_steps ? nullptr : tensors.v.data(), result.o.data(), result.lse.data(),
                       shape.length, shape.head_dim});
  const Int8Packed packed =
      reads_steps ? Int8Packed{tensors.packed_k.data(), tensors.packed_v.data()} : Int8Packed{};
  const std::unique_ptr<void, void (*)(void*)> workspace(
      core::os::AllocateAligned(Int8WorkspaceBytes(problem, num_threads)), core::os::FreeAligned);
  const core::Status status = RunInt8(kernel, problem, packed, num_threads, workspace.get());
  EXPECT_TRUE(status.ok()) << status.message();
  return result;
}

bool HasSameBits(const Result& a, const Result& b) {
  return std::memcmp(a.o.data(), b.o.data(), a.o.size() * sizeof(float)) == 0 &&
         std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
}

std::int64_t RawScore(const Tensors& tensors, std::int64_t query, std::int64_t key) {
  const std::int64_t head_dim = tensors.shape.head_dim;
  std::int64_t sum = 0;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    sum += tensors.q[static_cast<std::size_t>(query * head_dim + d)] *
           tensors.k[static_cast<std::size_t>(key * head_dim + d)];
  }
  return sum;
}

std::int64_t RoundedShift(std::int64_t x, int bits) {
  return (x + (std::int64_t{1} << (bits - 1))) >> bits;
}

// One row as docs/numerics.md words it, in 64-bit integers and one float operation at a time.
void ModelRow(const Tensors& tensors, std::int64_t query, float* o, float* lse) {
  const FlushDenormals flush;
  const auto [length, head_dim, low, high] = tensors.shape;
  const auto multiplier = static_cast<std::int64_t>(std::floor(
      std::ldexp(1.4426950408889634, 26) / std::sqrt(static_cast<double>(head_dim)) + 0.5));
  std::vector<float> sums(static_cast<std::size_t>(head_dim), 0.0f);
  float weight_sum = 0.0f;
  std::int64_t max = 0, exponent = 0;
  for (std::int64_t first = 0; first < length; first += 64) {
    const std::int64_t end = std::min<std::int64_t>(first + 64, length);
    std::vector<std::int64_t> scores;
    for (std::int64_t key = first; key < end; ++key) {
      scores.push_back(RawScore(tensors, query, key));
    }
    const std::int64_t block_max = *std::max_element(scores.begin(), scores.end());
    const std::int64_t old_exponent = exponent;
    if (first == 0 || block_max > max) max = block_max;
    const std::int64_t steps = RoundedShift(max * multiplier, 18);
    exponent = (steps + 255) >> 8;
    if (first != 0 && exponent != old_exponent) {
      const auto power = static_cast<int>(old_exponent - exponent);
      const float factor = power < -126 ? 0.0f : std::ldexp(1.0f, power);
      weight_sum *= factor;
      for (float& sum : sums) sum *= factor;
    }
    std::int64_t block_sum = 0;
    for (std::int64_t key = first; key < end; ++key) {
      const std::int64_t distance = std::min<std::int64_t>(
          max - scores[static_cast<std::size_t>(key - first)], (30ll << 26) / multiplier);
      const std::int64_t above = exponent * 256 - steps;
      const std::int64_t t = RoundedShift(distance * multiplier + (above << 18), 18);
      const std::int64_t f = t & 255;
      const std::int64_t inner = 7565 - RoundedShift(f * 1291, 8);
      const std::int64_t outer = 22659 - RoundedShift(f * inner, 8);
      const std::int64_t weight = RoundedShift(((1 << 23) - f * outer) >> (t >> 8), 7);
      block_sum += weight;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        sums[static_cast<std::size_t>(d)] +=
            static_cast<float>(weight * tensors.v[static_cast<std::size_t>(key * head_dim + d)]);
      }
    }
    weight_sum += static_cast<float>(block_sum);
  }
  const float inverse = 1.0f / weight_sum;
  for (std::int64_t d = 0; d < head_dim; ++d) o[d] = sums[static_cast<std::size_t>(d)] * inverse;
  *lse = static_cast<float>(static_cast<double>(exponent - 16) * std::log(2.0) +
                            std::log(static_cast<double>(weight_sum)));
}

// Largest |O - exact| / bound and |lse - exact| / bound of a row.
double WorstOfRow(const Tensors& tensors, const Result& result, std::int64_t query) {
  const auto [length, head_dim, low, high] = tensors.shape;
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  std::vector<double> weights;
  for (std::int64_t key = 0; key < length; ++key) {
    weights.push_back(scale * static_cast<double>(RawScore(tensors, query, key)));
  }
  const double max = *std::max_element(weights.begin(), weights.end());
  double sum = 0.0;
  for (double& weight : weights) sum += weight = std::exp(weight - max);

  const double half_multiplier = 0.5 / (std::ldexp(std::log2(std::exp(1.0)), 26) * scale);
  const double relative =
      std::exp2(std::ldexp(1.0, -8) + 30.0 * half_multiplier) * (1.0 + 1.07e-4) - 1.0;
  double error_sum = 0.0;
  for (const double weight : weights) {
    error_sum += relative * weight + std::min(weight * (1.0 + relative), std::ldexp(1.0, -16));
  }
  const double share = error_sum / (sum - error_sum);
  if (!(share > 0.0)) return INFINITY;
  const double roundings = (1.02 * static_cast<double>(length) + 8.0) * std::ldexp(1.0, -24);
  const double largest = std::max(std::abs(low), std::abs(high));

  double worst = 0.0;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    double exact = 0.0, spread = 0.0;
    for (std::int64_t key = 0; key < length; ++key) {
      exact += weights[static_cast<std::size_t>(key)] *
               tensors.v[static_cast<std::size_t>(key * head_dim + d)];
    }
    exact /= sum;
    for (std::int64_t key = 0; key < length; ++key) {
      spread = std::max(spread,
                        std::abs(tensors.v[static_cast<std::size_t>(key * head_dim + d)] - exact));
    }
    const double off = std::abs(result.o[static_cast<std::size_t>(query * head_dim + d)] - exact);
    worst = std::max(worst, off / (share * spread + roundings * largest + 1e-300));
  }
  const double exact_lse = max + std::log(sum);
  const double lse_bound = std::log1p(share) + std::abs(max) * half_multiplier + roundings +
                           std::abs(exact_lse) * std::ldexp(1.0, -23);
  return std::max(worst,
                  std::abs(result.lse[static_cast<std::size_t>(query)] - exact_lse) / lse_bound);
}

struct Named {
  const char* name;
  const Int8Kernel* kernel;
};

std::vector<Named> KernelsHere() {
  std::vector<Named> kernels;
  for (int index = 1; index < core::kNumCpuTargets; ++index) {
    const auto target = static_cast<core::CpuTarget>(index);
    const Int8Kernel* kernel = FindInt8Kernel(target);
    if (kernel == nullptr || !test::TestsTarget(core::CpuTargetName(target))) continue;
    if (!core::os::HasCpuTarget(target)) {
      std::printf("NOT TESTED: %s does not run here\n", core::CpuTargetName(target));
      continue;
    }
    kernels.push_back({core::CpuTargetName(target), kernel});
  }
  EXPECT_FALSE(kernels.empty()) << "HEED_TEST_TARGETS names no kernel of this CPU";
  return kernels;
}

constexpr Shape kShapes[] = {
    {1, 1, -128, 127}, {2, 3, -128, 127},   {47, 4, -16, 15},    {48, 5, -2, 2},
    {49, 16, -16, 15}, {63, 64, -16, 15},   {64, 17, -128, 127}, {65, 100, -16, 15},
    {129, 65, -1, 1},  {200, 128, -16, 15}, {257, 31, -4, 4},    {300, 256, -128, 127},
    {500, 64, -1, 1},  {193, 1, -128, 127}, {640, 96, -16, 15},
};

TEST(Int8Forward, EveryTargetAndThreadCountHasTheBitsOfTheModel) {
  for (const Shape& shape : kShapes) {
    const Tensors tensors = MakeTensors(shape, 7);
    Result model;
    model.o.resize(static_cast<std::size_t>(shape.length * shape.head_dim));
    model.lse.resize(static_cast<std::size_t>(shape.length));
    for (std::int64_t row = 0; row < shape.length; ++row) {
      ModelRow(tensors, row, &model.o[static_cast<std::size_t>(row * shape.head_dim)],
               &model.lse[static_cast<std::size_t>(row)]);
    }
    for (const Named& named : KernelsHere()) {
      for (const int num_threads : {1, 2, 7}) {
        EXPECT_TRUE(HasSameBits(RunOn(*named.kernel, tensors, num_threads), model))
            << named.name << " L " << shape.length << " D " << shape.head_dim << " threads "
            << num_threads;
      }
    }
  }
}

TEST(Int8Forward, IsWithinTheBoundOfExactAttention) {
  const Named best = KernelsHere().back();
  for (const Shape& shape : kShapes) {
    const Tensors tensors = MakeTensors(shape, 11);
    const Result result = RunOn(*best.kernel, tensors, 2);
    double worst = 0.0;
    for (std::int64_t row = 0; row < shape.length; ++row) {
      worst = std::max(worst, WorstOfRow(tensors, result, row));
    }
    EXPECT_LE(worst, 1.0) << "L " << shape.length << " D " << shape.head_dim;
  }
}

// Every block raises the maximum, by much and by little: sums are rescaled each time, and down
// through the subnormal numbers.
TEST(Int8Forward, RisingScoresAreWithinTheBound) {
  for (const int step : {1, 3, 40}) {
    Tensors tensors = MakeTensors({1024, 16, -8, 7}, 3);
    for (std::int64_t key = 0; key < 1024; ++key) {
      for (int d = 0; d < 16; ++d) {
        tensors.q[static_cast<std::size_t>(key * 16 + d)] = 127;
        tensors.k[static_cast<std::size_t>(key * 16 + d)] = static_cast<std::int8_t>(
            d == 0 ? std::min<std::int64_t>(key / 64 * step - 120, 127) : 0);
      }
    }
    Pack(&tensors);
    tensors.shape.low = -128;
    const Result expected = RunOn(*FindInt8Kernel(core::CpuTarget::kGeneric), tensors, 1);
    for (const Named& named : KernelsHere()) {
      const Result result = RunOn(*named.kernel, tensors, 2);
      EXPECT_TRUE(HasSameBits(result, expected)) << named.name << " step " << step;
    }
    for (std::int64_t row = 0; row < 1024; row += 100) {
      EXPECT_LE(WorstOfRow(tensors, expected, row), 1.0) << "step " << step;
    }
  }
}

// What the comparison would miss if it could not fail.
TEST(Int8Forward, PlantedFaultsAreAboveTheBound) {
  const Tensors tensors = MakeTensors({200, 64, -4, 4}, 5);
  const Result right = RunOn(*FindInt8Kernel(core::CpuTarget::kGeneric), tensors, 1);
  ASSERT_LE(WorstOfRow(tensors, right, 100), 1.0);

  Tensors fault = tensors;  // one key not seen
  fault.shape.length = 199;
  Pack(&fault);
  const Result blind = RunOn(*FindInt8Kernel(core::CpuTarget::kGeneric), fault, 1);
  double worst = 0.0;
  for (std::int64_t row = 0; row < 199; ++row) {
    worst = std::max(worst, WorstOfRow(tensors, blind, row));
  }
  EXPECT_GT(worst, 1.0);

  Result scaled = right;  // the sum off by 2 %, as with a linear exp2
  for (float& x : scaled.o) x *= 1.02f;
  worst = 0.0;
  for (std::int64_t row = 0; row < 200; ++row) {
    worst = std::max(worst, WorstOfRow(tensors, scaled, row));
  }
  EXPECT_GT(worst, 1.0);
}

TEST(Int8Softmax, Exp2ConstantsKeepTheirError) {
  double worst = 0.0;
  for (int f = 0; f < 256; ++f) {
    const std::int64_t inner = kExp2B - RoundedShift(f * kExp2C, 8);
    const std::int64_t outer = kExp2A - RoundedShift(f * inner, 8);
    ASSERT_GT(inner, 0);
    ASSERT_LT(inner, 1 << 15);
    ASSERT_GT(outer, 0);
    ASSERT_LT(outer, 1 << 15);
    const double value = std::ldexp(static_cast<double>((1 << 23) - f * outer), -23);
    worst = std::max(worst, std::abs(value / std::exp2(-f / 256.0) - 1.0));
  }
  EXPECT_LE(worst, 1.07e-4);
}

// The largest head dim with the largest scores: nothing overflows.
TEST(Int8Forward, TheLargestScoresFit) {
  const std::int64_t head_dim = kMaxInt8HeadDim;
  Tensors tensors = MakeTensors({3, head_dim, -128, -128}, 1);
  std::fill_n(tensors.k.begin() + head_dim, head_dim, std::int8_t{127});
  Pack(&tensors);
  for (const Named& named : KernelsHere()) {
    const Result result = RunOn(*named.kernel, tensors, 1);
    EXPECT_EQ(result.o[0], -128.0f) << named.name;
    const double largest = 16384.0 * std::sqrt(static_cast<double>(head_dim)) + std::log(2.0);
    EXPECT_NEAR(result.lse[0], largest, 3e-6 * largest) << named.name;
  }
}

}  // namespace
}  // namespace heed::cpu
