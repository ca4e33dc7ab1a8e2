#include "int8/int8_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include "core/os/os.h"
#include "core/problem.h"
#include "cpu/int8_forward.h"
#include "device/float16.h"
#include "support/tested_targets.h"

namespace heed::test {
namespace {

constexpr double kUnit = 5.9604644775390625e-8;  // 2^-24
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::int64_t NumScales(std::int64_t block, std::int64_t rows, std::int64_t without) {
  return block <= 0 ? without : (rows + block - 1) / block;
}

void FillBytes(OwnedTensor* tensor, std::mt19937* random) {
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor->shape) count *= extent;
  for (std::int64_t n = 0; n < count; ++n) {
    tensor->data<std::int8_t>()[n] =
        static_cast<std::int8_t>(static_cast<int>((*random)() % 256) - 128);
  }
}

void FillScales(OwnedTensor* tensor, std::mt19937* random) {
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor->shape) count *= extent;
  std::uniform_real_distribution<float> draw(0.2f, 1.5f);
  for (std::int64_t n = 0; n < count; ++n) {
    // A scale of 0 is legal.
    tensor->data<float>()[n] = (*random)() % 16 == 0 ? 0.0f : draw(*random);
  }
}

}  // namespace

Int8Call::Int8Call(const Int8Case& description, unsigned seed)
    : spec(description),
      q(kI8, {spec.batch, spec.q_len, num_q_heads(), spec.head_dim}),
      k(kI8, {spec.batch, spec.kv_len, spec.num_kv_heads, spec.head_dim}),
      v(kI8, {spec.batch, spec.kv_len, spec.num_kv_heads, spec.head_dim_v}),
      o(spec.o_dtype, {spec.batch, spec.q_len, num_q_heads(), spec.head_dim_v}, 0xFF),
      lse(kF32, {spec.batch, num_q_heads(), spec.q_len}, 0xFF),
      q_scales(kF32, {spec.batch, num_q_heads(), NumScales(spec.q_block, spec.q_len, 1)}),
      k_scales(kF32, {spec.batch, spec.num_kv_heads, NumScales(spec.k_block, spec.kv_len, 1)}),
      v_scales(kF32, {spec.batch, spec.num_kv_heads,
                      NumScales(spec.v_block, spec.kv_len, spec.head_dim_v)}) {
  std::mt19937 random(seed);
  for (OwnedTensor* tensor : {&q, &k, &v}) FillBytes(tensor, &random);
  for (OwnedTensor* tensor : {&q_scales, &k_scales, &v_scales}) FillScales(tensor, &random);
  score.scale = &spec.scale;
  score.causal = spec.causal;
  score.alignment = spec.alignment;
  score.window_left = spec.window_left;
  score.window_right = spec.window_right;
  int8.softmax = spec.softmax;
  int8.values = spec.values;
  if (spec.q_block != kNoScales) int8.q_scales = &q_scales.abi;
  if (spec.k_block != kNoScales) int8.k_scales = &k_scales.abi;
  if (spec.v_block != kNoScales) int8.v_scales = &v_scales.abi;
  int8.q_block_rows = std::max<std::int64_t>(spec.q_block, 0);
  int8.k_block_rows = std::max<std::int64_t>(spec.k_block, 0);
  int8.v_block_rows = std::max<std::int64_t>(spec.v_block, 0);
  args.q = &q.abi;
  args.k = &k.abi;
  args.v = &v.abi;
  args.o = &o.abi;
  args.lse = &lse.abi;
  args.score = &score;
  args.exec = &exec;
  args.int8 = &int8;
}

float Int8Call::OutputAt(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) {
  const std::int64_t at = ((b * spec.q_len + i) * num_q_heads() + h) * spec.head_dim_v + d;
  if (spec.o_dtype.bits == 32) return o.data<float>()[at];
  const std::uint16_t bits = o.data<std::uint16_t>()[at];
  return spec.o_dtype.code == HEED_DTYPE_BFLOAT ? device::Bf16ToFp32(bits)
                                                : device::Fp16ToFp32(bits);
}

double Int8Call::Scale(OwnedTensor& scales, std::int64_t block, std::int64_t b, std::int64_t h,
                       std::int64_t row) const {
  if (block == kNoScales) return 1.0;
  const std::int64_t index = block == 0 ? 0 : row / block;
  return scales.data<float>()[(b * scales.shape[1] + h) * scales.shape[2] + index];
}

void RunOn(const cpu::Int8Kernel& kernel, Int8Call* call, std::int64_t num_workers) {
  core::ForwardProblem problem;
  const core::Status built = core::BuildForwardProblem(&call->args, core::Purpose::kRun, &problem);
  ASSERT_TRUE(built.ok()) << built.message();
  const std::unique_ptr<void, void (*)(void*)> workspace(
      core::os::AllocateAligned(cpu::Int8WorkspaceBytes(problem, num_workers)),
      core::os::FreeAligned);
  const core::Status status = cpu::RunInt8(kernel, problem, {}, num_workers, workspace.get());
  ASSERT_TRUE(status.ok()) << status.message();
}

namespace {

// What may be wrong with a weight, as docs/numerics.md words it. Roundings are not in the sum of
// the weights.
struct WeightErrors {
  double relative;  // of the exponential
  double rounding;  // relative to the weight
  double step;      // of a rounding to whole steps of the largest weight
};

WeightErrors ErrorsOf(heed_int8_values_t values, double largest_score) {
  const double score_error = 12.0 * kUnit * largest_score + 1e-30;
  const double of_score = std::expm1(2.0 * score_error);
  switch (values) {
    case HEED_INT8_VALUES_BF16:
      return {of_score + 7.6e-5, std::ldexp(1.0, -8), 0.0};
    case HEED_INT8_VALUES_U8:
      return {of_score + 1.74e-3, 0.0, 0.5 / 255.0};
    default:
      return {of_score + 3e-7, 0.0, 0.0};
  }
}

// One row: keys it sees with their exact weights.
struct Row {
  std::int64_t b, h, i;
  std::vector<std::int64_t> keys;
  std::vector<double> weights;  // relative to the largest
  double max = 0.0, sum = 0.0, largest_score = 0.0;
};

Row ExactRow(Int8Call* call, std::int64_t b, std::int64_t h, std::int64_t i) {
  const Int8Case& spec = call->spec;
  Row row{b, h, i, {}, {}};
  const std::int64_t kv_head = h / spec.group;
  const std::int64_t shift =
      spec.alignment == HEED_ALIGN_BOTTOM_RIGHT ? spec.kv_len - spec.q_len : 0;
  const std::int8_t* q = call->q.data<std::int8_t>() +
                         ((b * spec.q_len + i) * call->num_q_heads() + h) * spec.head_dim;
  const double q_scale = call->Scale(call->q_scales, spec.q_block, b, h, i);
  row.max = -kInfinity;
  for (std::int64_t j = 0; j < spec.kv_len; ++j) {
    if (spec.causal == HEED_CAUSAL_ON && j > i + shift) continue;
    if (spec.window_left >= 0 && j < i + shift - spec.window_left) continue;
    if (spec.window_right >= 0 && j > i + shift + spec.window_right) continue;
    const std::int8_t* k = call->k.data<std::int8_t>() +
                           ((b * spec.kv_len + j) * spec.num_kv_heads + kv_head) * spec.head_dim;
    std::int64_t raw = 0;
    for (std::int64_t d = 0; d < spec.head_dim; ++d) raw += q[d] * k[d];
    const double s = spec.scale * q_scale *
                     call->Scale(call->k_scales, spec.k_block, b, kv_head, j) *
                     static_cast<double>(raw);
    row.keys.push_back(j);
    row.weights.push_back(s);
    row.max = std::max(row.max, s);
    row.largest_score = std::max(row.largest_score, std::abs(s));
  }
  for (double& weight : row.weights) row.sum += weight = std::exp(weight - row.max);
  return row;
}

double Value(Int8Call* call, const Row& row, std::int64_t j, std::int64_t d) {
  const Int8Case& spec = call->spec;
  const std::int64_t kv_head = row.h / spec.group;
  const double integer =
      call->v.data<std::int8_t>()[((row.b * spec.kv_len + j) * spec.num_kv_heads + kv_head) *
                                      spec.head_dim_v +
                                  d];
  if (spec.v_block == 0) {
    return integer *
           call->v_scales
               .data<float>()[(row.b * spec.num_kv_heads + kv_head) * spec.head_dim_v + d];
  }
  return integer * call->Scale(call->v_scales, spec.v_block, row.b, kv_head, j);
}

// The value of the largest scale among the keys that share a block of 128 with j.
double LargestOfBlock(Int8Call* call, const Row& row, std::int64_t j, std::int64_t d) {
  const Int8Case& spec = call->spec;
  if (spec.v_block <= 0) return std::abs(Value(call, row, j, d));
  const std::int64_t kv_head = row.h / spec.group;
  double largest = 0.0;
  for (std::int64_t n = j / 128 * 128; n < std::min(spec.kv_len, j / 128 * 128 + 128); ++n) {
    largest = std::max(largest, call->Scale(call->v_scales, spec.v_block, row.b, kv_head, n));
  }
  return largest *
         std::abs(static_cast<double>(
             call->v.data<std::int8_t>()[((row.b * spec.kv_len + j) * spec.num_kv_heads + kv_head) *
                                             spec.head_dim_v +
                                         d]));
}

double StorageError(heed_dtype_t dtype, double exact) {
  if (dtype.bits == 32) return 0.0;
  if (dtype.code == HEED_DTYPE_BFLOAT) return std::ldexp(std::abs(exact), -8);
  return std::ldexp(std::abs(exact), -10) + std::ldexp(1.0, -25);
}

double WorstOfRow(Int8Call* call, const Row& row) {
  const Int8Case& spec = call->spec;
  if (row.keys.empty()) {
    bool is_right = call->LseAt(row.b, row.h, row.i) == -kInfinity;
    for (std::int64_t d = 0; d < spec.head_dim_v; ++d) {
      is_right = is_right && call->OutputAt(row.b, row.i, row.h, d) == 0.0f;
    }
    return is_right ? 0.0 : kInfinity;
  }
  const WeightErrors errors = ErrorsOf(spec.values, row.largest_score);
  const double num_keys = static_cast<double>(row.keys.size());
  const double roundings = (1.02 * num_keys + 12.0) * kUnit;
  double worst = 0.0;
  for (std::int64_t d = 0; d < spec.head_dim_v; ++d) {
    double exact = 0.0, largest = 0.0;
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      const double value = Value(call, row, row.keys[n], d);
      exact += row.weights[n] * value;
      largest = std::max(largest, std::abs(value));
    }
    exact /= row.sum;
    double off = 0.0;
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      const double value = Value(call, row, row.keys[n], d);
      off += errors.relative * row.weights[n] * std::abs(value - exact);
      const double product = row.weights[n] * std::abs(value) * (1.0 + errors.relative);
      off += errors.rounding * product;
      off += std::min(errors.step * LargestOfBlock(call, row, row.keys[n], d), product);
    }
    const double bound = off / (row.sum * (1.0 - errors.relative)) + roundings * largest +
                         StorageError(spec.o_dtype, exact) + 1e-30;
    const double error =
        std::abs(static_cast<double>(call->OutputAt(row.b, row.i, row.h, d)) - exact) / bound;
    // A NaN is the worst.
    worst = error <= worst ? worst : std::isnan(error) ? kInfinity : error;
  }
  const double exact_lse = row.max + std::log(row.sum);
  const double lse_bound = errors.relative + roundings + 12.0 * kUnit * row.largest_score +
                           4.0 * kUnit * std::abs(exact_lse) + 4.0 * kUnit;
  const double error =
      std::abs(static_cast<double>(call->LseAt(row.b, row.h, row.i)) - exact_lse) / lse_bound;
  return error <= worst ? worst : std::isnan(error) ? kInfinity : error;
}

}  // namespace

double WorstError(Int8Call* call) {
  double worst = 0.0;
  for (std::int64_t b = 0; b < call->spec.batch; ++b) {
    for (std::int64_t h = 0; h < call->num_q_heads(); ++h) {
      // Some rows of each tile, the first ones and the last.
      const std::int64_t step = call->spec.q_len / 12 + 1;
      for (std::int64_t n = 0; n < call->spec.q_len + step - 1; n += step) {
        const std::int64_t i = std::min(n, call->spec.q_len - 1);
        worst = std::max(worst, WorstOfRow(call, ExactRow(call, b, h, i)));
      }
    }
  }
  return worst;
}

std::vector<NamedInt8Kernel> Int8KernelsHere() {
  std::vector<NamedInt8Kernel> kernels;
  for (int index = 1; index < core::kNumCpuTargets; ++index) {
    const auto target = static_cast<core::CpuTarget>(index);
    const cpu::Int8Kernel* kernel = cpu::FindInt8Kernel(target);
    if (kernel == nullptr || !TestsTarget(core::CpuTargetName(target))) continue;
    if (!core::os::HasCpuTarget(target)) {
      std::printf("NOT TESTED: %s does not run here\n", core::CpuTargetName(target));
      continue;
    }
    kernels.push_back({core::CpuTargetName(target), kernel});
  }
  EXPECT_FALSE(kernels.empty()) << "HEED_TEST_TARGETS names no kernel of this CPU";
  if (!TestsEverything()) return kernels;
  kernels.push_back({"emulated signed bytes", &kEmulatedSignedInt8Kernel, true});
  kernels.push_back({"emulated matrix unit", &kEmulatedMatrixInt8Kernel, true});
  return kernels;
}

}  // namespace heed::test
