// bench_flash_attention_v2_opt [SEQ_LEN...]
// Times one token of generation (load_qkv, decode_gpu, get_output; the host waits for each) at the
// given numbers of cached tokens, for the head counts of three models: 50 warm-up steps, then 200
// timed ones, of which median, 95th and 99th percentile are printed. The device is the one that
// flash_attention_v2_optimized.h chooses; HEED_FLASH_ATTENTION_V2_OPT=cpu or cuda sets it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "flash_attention_v2_optimized.h"
#include "heed/heed.h"

namespace {

constexpr int kWarmUpSteps = 50;
constexpr int kTimedSteps = 200;

struct Model {
  const char* name;
  int batch_heads, head_dim;
};

constexpr Model kModels[] = {{"SmolLM-135M", 9, 64}, {"Qwen-0.5B", 14, 64}, {"Qwen-1.5B", 12, 128}};

using Rows = std::vector<float>;

void Check(int status, const char* what) {
  if (status == 0) return;
  std::fprintf(stderr, "%s: %s\n", what, heed_last_error());
  std::exit(1);
}

Rows Draw(std::mt19937* random, std::size_t count) {
  std::normal_distribution<float> normal;
  Rows rows(count);
  for (float& value : rows) value = normal(*random);
  return rows;
}

double Microseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

// Smallest value that at least `percent` of the sorted ones do not exceed.
double Percentile(const std::vector<double>& sorted, double percent) {
  const double rank = std::ceil(percent / 100.0 * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(1.0, rank)) - 1];
}

void Measure(const Model& model, int seq_len) {
  std::mt19937 random(1);
  const auto count = static_cast<std::size_t>(model.batch_heads * model.head_dim);
  const Rows q = Draw(&random, count), k = Draw(&random, count), v = Draw(&random, count);
  Rows o(count);
  const int capacity = seq_len + kWarmUpSteps + kTimedSteps;
  Check(flash_attention_v2_opt_init(model.batch_heads, capacity, model.head_dim), "init");
  for (int token = 0; token < seq_len; ++token) {
    Check(flash_attention_v2_opt_load_qkv(q.data(), k.data(), v.data(), model.batch_heads), "load");
  }
  flash_attention_v2_opt_sync();
  std::vector<double> steps_us;
  for (int step = 0; step < kWarmUpSteps + kTimedSteps; ++step) {
    const double begin_us = Microseconds();
    Check(flash_attention_v2_opt_load_qkv(q.data(), k.data(), v.data(), model.batch_heads), "load");
    Check(flash_attention_v2_opt_decode_gpu(model.batch_heads, seq_len > 256), "decode");
    Check(flash_attention_v2_opt_get_output(o.data(), model.batch_heads), "output");
    if (step >= kWarmUpSteps) steps_us.push_back(Microseconds() - begin_us);
  }
  // Every key and value is the same: the output is that value, as fp16 holds it.
  for (std::size_t n = 0; n < count; ++n) {
    if (!(std::abs(o[n] - v[n]) <= 4e-3f * std::abs(v[n]) + 1e-6f)) {
      std::fprintf(stderr, "%s: element %zu is %g, not %g\n", model.name, n,
                   static_cast<double>(o[n]), static_cast<double>(v[n]));
      std::exit(1);
    }
  }
  std::sort(steps_us.begin(), steps_us.end());
  std::printf("%-12s %5d heads x %3d  %6d tokens  median %9.1f us  p95 %9.1f us  p99 %9.1f us\n",
              model.name, model.batch_heads, model.head_dim, seq_len, Percentile(steps_us, 50.0),
              Percentile(steps_us, 95.0), Percentile(steps_us, 99.0));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> lengths;
  for (int n = 1; n < argc; ++n) lengths.push_back(std::atoi(argv[n]));
  if (lengths.empty()) lengths = {64, 256, 1024, 2048};
  for (const int seq_len : lengths) {
    if (seq_len < 1 || seq_len > 1 << 20) {
      std::fprintf(stderr, "SEQ_LEN = %d: must be from 1 to %d\n", seq_len, 1 << 20);
      return 2;
    }
    for (const Model& model : kModels) Measure(model, seq_len);
  }
  flash_attention_v2_opt_cleanup();
  return 0;
}
