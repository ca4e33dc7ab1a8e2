// bench_flash_fused_v2 [L] [head_dim] [num_iters] [num_threads_ref]
// Times flash_attention_fused_forward_packed on one thread against a plain fp32 attention on
// num_threads_ref threads, and compares the results.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "flash_attention_fused_v2.h"

namespace {

using Bytes = std::vector<std::int8_t>;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Problem {
  std::int64_t length, head_dim;
  Bytes q, k, v, packed_k, packed_v;
};

Problem MakeProblem(std::int64_t length, std::int64_t head_dim) {
  Problem problem{length, head_dim, {}, {}, {}, {}, {}};
  std::mt19937 random(1);
  for (Bytes* tensor : {&problem.q, &problem.k, &problem.v}) {
    tensor->resize(static_cast<std::size_t>(length * head_dim));
    for (auto& x : *tensor) x = static_cast<std::int8_t>(static_cast<int>(random() % 32) - 16);
  }
  problem.packed_k.resize(flash_kp_size(length, head_dim));
  problem.packed_v.resize(flash_vp_size(length, head_dim));
  pack_k_for_flash_attention(problem.k.data(), problem.packed_k.data(), length, head_dim);
  pack_v_for_flash_attention(problem.v.data(), problem.packed_v.data(), length, head_dim);
  return problem;
}

// Rows first, first + step, ... of softmax(q k^T / sqrt(D)) v, one score row at a time.
void ReferenceRows(const Problem& problem, std::int64_t first, std::int64_t step, float* o) {
  const std::int64_t length = problem.length, head_dim = problem.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  std::vector<float> weights(static_cast<std::size_t>(length));
  std::vector<float> row(static_cast<std::size_t>(head_dim));
  for (std::int64_t i = first; i < length; i += step) {
    const std::int8_t* q = problem.q.data() + i * head_dim;
    float max = -INFINITY, sum = 0.0f;
    for (std::int64_t j = 0; j < length; ++j) {
      const std::int8_t* k = problem.k.data() + j * head_dim;
      std::int32_t dot = 0;
      for (std::int64_t d = 0; d < head_dim; ++d) dot += q[d] * k[d];
      weights[static_cast<std::size_t>(j)] = scale * static_cast<float>(dot);
      max = std::max(max, weights[static_cast<std::size_t>(j)]);
    }
    std::fill(row.begin(), row.end(), 0.0f);
    for (std::int64_t j = 0; j < length; ++j) {
      const float weight = std::exp(weights[static_cast<std::size_t>(j)] - max);
      const std::int8_t* v = problem.v.data() + j * head_dim;
      sum += weight;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        row[static_cast<std::size_t>(d)] += weight * static_cast<float>(v[d]);
      }
    }
    for (std::int64_t d = 0; d < head_dim; ++d) {
      o[i * head_dim + d] = row[static_cast<std::size_t>(d)] / sum;
    }
  }
}

double ReferenceSeconds(const Problem& problem, std::int64_t num_threads, float* o) {
  const double start = Seconds();
  std::vector<std::thread> threads;
  for (std::int64_t t = 0; t < num_threads; ++t) {
    threads.emplace_back(
        [&problem, t, num_threads, o] { ReferenceRows(problem, t, num_threads, o); });
  }
  for (std::thread& thread : threads) thread.join();
  return Seconds() - start;
}

double FusedSeconds(const Problem& problem, std::int64_t num_iters, float* o) {
  std::vector<double> times;
  for (std::int64_t n = -1; n < num_iters; ++n) {  // the first one warms up
    const double start = Seconds();
    flash_attention_fused_forward_packed(problem.q.data(), problem.packed_k.data(),
                                         problem.packed_v.data(), o, nullptr, problem.length,
                                         problem.head_dim);
    if (n >= 0) times.push_back(Seconds() - start);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

// What a tile of a range and its block of keys and values touch, in bytes
// (docs/kernels/int8-cpu.md), q as words.
double WorkingSetBytes(std::int64_t head_dim) {
  const double q = 96, k = 64, v = 64, wide = 256, o = 192, scores = 4.0 * FA_TILE_BC * FA_TILE_BR;
  return (q + k + v + wide + o) * static_cast<double>(head_dim) + scores + 1500;
}

std::int64_t Argument(int count, char** values, int index, std::int64_t otherwise) {
  if (index >= count) return otherwise;
  const long long value = std::atoll(values[index]);
  if (value >= 1) return value;
  std::fprintf(stderr, "argument %d = %s: must be a whole number from 1 on\n", index,
               values[index]);
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t length = Argument(argc, argv, 1, 1024);
  const std::int64_t head_dim = Argument(argc, argv, 2, 128);
  const std::int64_t num_iters = Argument(argc, argv, 3, 5);
  const std::int64_t num_threads =
      Argument(argc, argv, 4, std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, 12));
  setenv("HEED_NUM_THREADS", "1", 1);

  const Problem problem = MakeProblem(length, head_dim);
  std::vector<float> o(problem.q.size()), reference(problem.q.size());
  const double fused = FusedSeconds(problem, num_iters, o.data());
  const double plain = ReferenceSeconds(problem, num_threads, reference.data());
  double worst = 0.0;
  for (std::size_t n = 0; n < o.size(); ++n) {
    const double off = std::abs(static_cast<double>(o[n]) - static_cast<double>(reference[n]));
    if (!(off <= worst)) worst = off;
  }
  const double elems = static_cast<double>(length) * static_cast<double>(head_dim);
  const double operations = 4.0 * elems * static_cast<double>(length);
  const double tiles = std::ceil(static_cast<double>(length) / FA_TILE_BR);

  std::printf("L %lld  head_dim %lld  iterations %lld\n", static_cast<long long>(length),
              static_cast<long long>(head_dim), static_cast<long long>(num_iters));
  std::printf("reference fp32     %10.3f ms on %lld threads\n", 1e3 * plain,
              static_cast<long long>(num_threads));
  std::printf("fused int8         %10.3f ms on 1 thread, median\n", 1e3 * fused);
  std::printf("speed-up           %10.2f x the reference as run\n", plain / fused);
  std::printf("speed-up estimated %10.2f x the reference on 1 thread\n",
              plain * static_cast<double>(num_threads) / fused);
  std::printf("rate               %10.2f Gop/s, 4 L^2 D operations\n", 1e-9 * operations / fused);
  std::printf("K and V read       %10.2f GB/s, once a tile at most\n",
              1e-9 * 2.0 * elems * tiles / fused);
  std::printf("working set        %10.1f KB of a tile\n", WorkingSetBytes(head_dim) / 1024.0);
  std::printf("largest error      %10.4f\n", worst);
  if (!(worst <= 1.0)) {
    std::fprintf(stderr, "more than 1.0 from the reference\n");
    return 1;
  }
  return 0;
}
