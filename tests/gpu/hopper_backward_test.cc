// What generated problems do not reach of the Hopper backward rows: thousands of sequences of one
// token or none, and gradients against differences of the forward pass.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gpu/cuda.h"
#include "gpu/cuda_rows.h"
#include "gpu/device_call.h"
#include "support/attention_call.h"
#include "support/random.h"

namespace heed::test {
namespace {

struct Row {
  const char* id;
  std::int64_t head_dim;
};
constexpr Row kRows[] = {{"cuda.sm90.backward.f16.d64.q64k128", 64},
                         {"cuda.sm90.backward.f16.d128.q64k128", 128},
                         {"cuda.sm90.backward.f16.d256.q64k64", 256}};

// Each row in a thread of its own: most of the time goes to compiling.
void OnEveryRow(void (*check)(const Row&)) {
  if (RunnableCudaRows("Backward", "cuda.sm90.backward").empty()) GTEST_SKIP() << "no Hopper GPU";
  std::vector<std::thread> threads;
  for (const Row& row : kRows) {
    threads.emplace_back([&row, check] {
      Cuda::Get().Use(0);
      check(row);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void FillNormal(StridedTensor& tensor, std::uint64_t seed) {
  Random random(seed, "normal");
  tensor.Fill([&](const Indices&) { return random.Normal(); });
}

// A call and its gradients; o and lse are inputs.
struct Gradients {
  explicit Gradients(AttentionCall& forward)
      : call(forward),
        d_o(forward.o.element(), forward.o.shape()),
        dq(forward.q.element(), forward.q.shape()),
        dk(forward.k.element(), forward.k.shape()),
        dv(forward.v.element(), forward.v.shape()) {
    exec.backend = HEED_BACKEND_CUDA;
    args.forward = &forward.args;
    args.d_o = d_o.abi();
    args.dq = dq.abi();
    args.dk = dk.abi();
    args.dv = dv.abi();
    args.exec = &exec;
  }

  // max_len: of a sequence.
  void RunOn(const Row& row, std::int64_t max_len) {
    exec.kernel = row.id;
    for (StridedTensor* tensor : {&dq, &dk, &dv}) tensor->PoisonAll(Poison::kNaN);
    DeviceBackwardCall device(args, max_len, max_len);
    ASSERT_EQ(heed_backward(device.backward_args()), HEED_OK) << row.id << heed_last_error();
    ASSERT_EQ(device.Finish(), "") << row.id;
  }

  AttentionCall& call;
  StridedTensor d_o, dq, dk, dv;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_backward_args_t args = HEED_BACKWARD_ARGS_INIT;
};

// 8300 packed sequences, every third one empty, the others of one token that sees its own key: P is
// 1 whatever the score, so that dv = d_o, while dP = delta makes dq and dk 0.
void CheckManySequences(const Row& row) {
  constexpr std::int64_t kSequences = 8300, kHeads = 2;
  std::vector<std::int64_t> offsets = {0};
  for (std::int64_t i = 0; i < kSequences; ++i) offsets.push_back(offsets.back() + (i % 3 != 0));
  const Indices shape = {offsets.back(), kHeads, row.head_dim};
  AttentionCall call(Element::kF16, shape, shape, shape);
  call.FillNormal(5);
  IntTensor cu_seqlens(offsets);
  call.varlen.cu_seqlens_q = call.varlen.cu_seqlens_kv = cu_seqlens.abi();
  call.varlen.max_seqlen_q = call.varlen.max_seqlen_kv = 1;
  const double scale = 1.0 / std::sqrt(static_cast<double>(row.head_dim));
  call.o.Fill([&](const Indices& at) { return call.v.At(at); });
  call.lse.Fill([&](const Indices& at) {
    double product = 0.0;
    for (std::int64_t d = 0; d < row.head_dim; ++d) {
      product += call.q.At({at[1], at[0], d}) * call.k.At({at[1], at[0], d});
    }
    return scale * product;
  });
  Gradients gradients(call);
  FillNormal(gradients.d_o, 6);
  gradients.RunOn(row, 1);
  // dP and delta are the same sum of head_dim products of about 1 in another order.
  const double bound = 1e-4;
  ForEachIndex(gradients.dv.shape(), [&](const Indices& at) {
    ASSERT_EQ(gradients.dv.At(at), gradients.d_o.At(at)) << row.id << ToString(at);
    ASSERT_NEAR(gradients.dq.At(at), 0.0, bound) << row.id << ToString(at);
    ASSERT_NEAR(gradients.dk.At(at), 0.0, bound) << row.id << ToString(at);
  });
}

TEST(GpuHopperBackward, ThousandsOfSequencesOfOneTokenOrNone) { OnEveryRow(CheckManySequences); }

// Every score is the same, far below 0, where the exponential of what fills a tile up would be
// infinite; the last tiles have few rows. Causal: row i weighs its i + 1 keys alike.
void CheckVeryNegativeScores(const Row& row) {
  constexpr std::int64_t kLength = 75;
  constexpr double kQuery = 16.0, kKey = -8.0;
  constexpr double kTolerance = 4e-3;  // of what is added up: fp16 P, dS and o
  const Indices shape = {1, kLength, 1, row.head_dim};
  AttentionCall call(Element::kF16, shape, shape, shape);
  call.FillNormal(9);
  call.q.Fill([&](const Indices&) { return kQuery; });
  call.k.Fill([&](const Indices&) { return kKey; });
  call.args.varlen = nullptr;
  call.score.causal = HEED_CAUSAL_ON;
  Gradients gradients(call);
  FillNormal(gradients.d_o, 10);
  const double scale = 1.0 / std::sqrt(static_cast<double>(row.head_dim));
  const double score = kQuery * kKey * scale * static_cast<double>(row.head_dim);
  call.lse.Fill(
      [&](const Indices& at) { return score + std::log(static_cast<double>(at[2] + 1)); });
  std::vector<double> sum_v(static_cast<std::size_t>(row.head_dim));
  for (std::int64_t i = 0; i < kLength; ++i) {
    for (std::int64_t d = 0; d < row.head_dim; ++d) {
      double& sum = sum_v[static_cast<std::size_t>(d)];
      sum += call.v.At({0, i, 0, d});
      call.o.Set({0, i, 0, d}, sum / static_cast<double>(i + 1));
    }
  }
  gradients.RunOn(row, kLength);
  // Sums over the pairs of a key and of a query, and of their absolute values.
  struct Sums {
    double d_s = 0.0, bound = 0.0;
  };
  std::vector<Sums> of_key(kLength), of_query(kLength);
  for (std::int64_t i = 0; i < kLength; ++i) {
    std::vector<double> d_p;
    double delta = 0.0;
    const double p = 1.0 / static_cast<double>(i + 1);
    for (std::int64_t j = 0; j <= i; ++j) {
      double product = 0.0;
      for (std::int64_t d = 0; d < row.head_dim; ++d) {
        product += gradients.d_o.At({0, i, 0, d}) * call.v.At({0, j, 0, d});
      }
      d_p.push_back(product);
      delta += p * product;
    }
    for (std::int64_t j = 0; j <= i; ++j) {
      const double product = d_p[static_cast<std::size_t>(j)];
      for (Sums* sums :
           {&of_key[static_cast<std::size_t>(j)], &of_query[static_cast<std::size_t>(i)]}) {
        sums->d_s += p * (product - delta);
        sums->bound += p * (std::abs(product) + std::abs(delta));
      }
    }
  }
  ForEachIndex(gradients.dv.shape(), [&](const Indices& at) {
    double expected = 0.0, bound = 0.0;
    for (std::int64_t i = at[1]; i < kLength; ++i) {
      const double term = gradients.d_o.At({0, i, 0, at[3]}) / static_cast<double>(i + 1);
      expected += term;
      bound += std::abs(term);
    }
    ASSERT_NEAR(gradients.dv.At(at), expected, kTolerance * bound) << row.id << ToString(at);
    const Sums& key = of_key[static_cast<std::size_t>(at[1])];
    ASSERT_NEAR(gradients.dk.At(at), scale * kQuery * key.d_s,
                kTolerance * scale * kQuery * key.bound)
        << row.id << ToString(at);
    const Sums& query = of_query[static_cast<std::size_t>(at[1])];
    ASSERT_NEAR(gradients.dq.At(at), scale * kKey * query.d_s,
                kTolerance * scale * -kKey * query.bound)
        << row.id << ToString(at);
  });
}

TEST(GpuHopperBackward, ScoresFarBelowZeroBesideTheEndsOfTiles) {
  OnEveryRow(CheckVeryNegativeScores);
}

// sum(o * d_o), by the planner's forward row; leaves o and lse in `call`.
double Loss(AttentionCall& call, const StridedTensor& d_o, std::int64_t max_len) {
  DeviceForwardCall device(call.args, max_len, max_len);
  EXPECT_EQ(heed_forward(device.args()), HEED_OK) << heed_last_error();
  EXPECT_EQ(device.Finish(), "");
  double loss = 0.0;
  ForEachIndex(call.o.shape(), [&](const Indices& at) { loss += call.o.At(at) * d_o.At(at); });
  return loss;
}

// Moves one input by eps times noise both ways: the loss changes by the gradient times what the
// input, rounded, has moved. The bound holds the rounding of o, whose errors add up as the square
// root of their number, and the third order of the step.
void CheckDifferences(const Row& row) {
  constexpr std::int64_t kLength = 200, kHeads = 4, kKvHeads = 2;
  constexpr double kEps = 0.01;
  const Indices q_shape = {1, kLength, kHeads, row.head_dim};
  const Indices kv_shape = {1, kLength, kKvHeads, row.head_dim};
  AttentionCall call(Element::kF16, q_shape, kv_shape, kv_shape);
  call.FillNormal(21);
  call.args.varlen = nullptr;
  call.score.causal = HEED_CAUSAL_ON;
  Gradients gradients(call);
  FillNormal(gradients.d_o, 22);
  Loss(call, gradients.d_o, kLength);
  gradients.RunOn(row, kLength);
  StridedTensor* const inputs[] = {&call.q, &call.k, &call.v};
  const StridedTensor* const expected[] = {&gradients.dq, &gradients.dk, &gradients.dv};
  const char* const names[] = {"dq", "dk", "dv"};
  for (int i = 0; i < 3; ++i) {
    StridedTensor& input = *inputs[i];
    StridedTensor middle(input.element(), input.shape()), up(input.element(), input.shape()),
        down(input.element(), input.shape());
    middle.Fill([&](const Indices& at) { return input.At(at); });
    // Along the gradient, beside noise: the change is far above what rounding adds to the loss.
    double norm = 0.0;
    ForEachIndex(input.shape(),
                 [&](const Indices& at) { norm += expected[i]->At(at) * expected[i]->At(at); });
    const double unit =
        std::sqrt(static_cast<double>(kLength * input.shape()[2] * row.head_dim) / norm);
    Random random(static_cast<std::uint64_t>(30 + i), "normal");
    up.Fill([&](const Indices& at) {
      return input.At(at) + kEps * (unit * expected[i]->At(at) + random.Normal());
    });
    down.Fill([&](const Indices& at) { return 2.0 * input.At(at) - up.At(at); });
    input.Fill([&](const Indices& at) { return up.At(at); });
    const double loss_up = Loss(call, gradients.d_o, kLength);
    input.Fill([&](const Indices& at) { return down.At(at); });
    const double loss_down = Loss(call, gradients.d_o, kLength);
    double predicted = 0.0;
    ForEachIndex(input.shape(), [&](const Indices& at) {
      predicted += expected[i]->At(at) * (up.At(at) - down.At(at));
    });
    EXPECT_NEAR(loss_up - loss_down, predicted, 0.01 * std::abs(predicted))
        << row.id << " " << names[i];
    input.Fill([&](const Indices& at) { return middle.At(at); });
  }
}

TEST(GpuHopperBackward, GradientsAreDifferencesOfForward) { OnEveryRow(CheckDifferences); }

}  // namespace
}  // namespace heed::test
