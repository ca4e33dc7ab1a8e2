// What short calls cost on many threads: a hand-off of no work to the thread pool, calls back to
// back and calls after a pause, then small calls of heed_forward and heed_decode by number of
// threads.
//
// usage: short_calls [--threads N] [--calls N] [--case TEXT]
// One JSON object a line; times are medians over the calls, in microseconds.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "core/os/thread_pool.h"
#include "heed/heed.h"

namespace {

constexpr heed_dtype_t kF32 = {HEED_DTYPE_FLOAT, 32, 1}, kBF16 = {HEED_DTYPE_BFLOAT, 16, 1},
                       kI32 = {HEED_DTYPE_INT, 32, 1};

double Microseconds() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Options {
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int num_calls = 300;
  std::string only;  // cases whose names contain it

  bool Wants(const std::string& name) const { return name.find(only) != std::string::npos; }
};

struct Times {
  double median_us = 0, tenth_us = 0, ninetieth_us = 0;
};

// Each call after an idle time: up to 200 us on the clock, as a caller's own work would be, else
// asleep.
template <class Call>
Times Time(int num_calls, double idle_us, const Call& call) {
  std::vector<double> times;
  for (int i = 0; i < 3; ++i) call();
  for (int i = 0; i < num_calls; ++i) {
    const double idle_end = Microseconds() + idle_us;
    if (idle_us > 200) {
      std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int>(idle_us)));
    }
    while (Microseconds() < idle_end) continue;
    const double begin = Microseconds();
    call();
    times.push_back(Microseconds() - begin);
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

void Print(const std::string& name, int threads, double idle_us, const Times& times) {
  std::printf(
      "{\"case\": \"%s\", \"threads\": %d, \"idle_us\": %.0f, \"us\": %.2f, \"tenth\": %.2f, "
      "\"ninetieth\": %.2f}\n",
      name.c_str(), threads, idle_us, times.median_us, times.tenth_us, times.ninetieth_us);
  std::fflush(stdout);
}

void Check(heed_status_t status) {
  if (status == HEED_OK) return;
  std::fprintf(stderr, "%s\n", heed_last_error());
  std::exit(1);
}

// Small numbers of either type, in memory of the caller.
class Tensor {
 public:
  Tensor(heed_dtype_t dtype, std::vector<std::int64_t> shape) : shape_(std::move(shape)) {
    std::size_t elems = 1;
    for (const std::int64_t extent : shape_) elems *= static_cast<std::size_t>(extent);
    // 0x3C in every byte is 0.0115 in both float types.
    bytes_.assign(elems * dtype.bits / 8, 0x3C);
    abi_ = {bytes_.data(),
            {HEED_DEVICE_CPU, 0},
            static_cast<std::int32_t>(shape_.size()),
            dtype,
            shape_.data(),
            nullptr,
            0};
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  const heed_tensor_t* abi() const { return &abi_; }
  void SetInt(std::int32_t value) { *reinterpret_cast<std::int32_t*>(bytes_.data()) = value; }

 private:
  std::vector<std::int64_t> shape_;
  std::vector<std::uint8_t> bytes_;
  heed_tensor_t abi_;
};

struct Shape {
  heed_dtype_t dtype;
  std::int64_t heads, kv_heads, q_len, kv_len, head_dim;
};

// Gives the call a workspace that outlives it.
template <class Args>
void UseWorkspace(heed_op_t op, const Args& args, heed_exec_args_t* exec,
                  std::vector<std::uint8_t>* memory) {
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  Check(heed_plan(op, &args, &plan));
  memory->resize(plan.workspace_bytes + 64);
  exec->workspace = memory->data() + (64 - reinterpret_cast<std::uintptr_t>(memory->data()) % 64);
  exec->workspace_bytes = plan.workspace_bytes;
}

Times TimeForward(const Shape& shape, int threads, int num_calls, double idle_us) {
  const Tensor q(shape.dtype, {1, shape.q_len, shape.heads, shape.head_dim});
  const Tensor k(shape.dtype, {1, shape.kv_len, shape.kv_heads, shape.head_dim});
  const Tensor v(shape.dtype, {1, shape.kv_len, shape.kv_heads, shape.head_dim});
  const Tensor o(shape.dtype, {1, shape.q_len, shape.heads, shape.head_dim});
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  exec.num_threads = threads;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  args.q = q.abi();
  args.k = k.abi();
  args.v = v.abi();
  args.o = o.abi();
  args.exec = &exec;
  std::vector<std::uint8_t> workspace;
  UseWorkspace(HEED_OP_FORWARD, args, &exec, &workspace);
  return Time(num_calls, idle_us, [&] { Check(heed_forward(&args)); });
}

Times TimeDecode(const Shape& shape, int threads, int num_calls, double idle_us) {
  const Tensor q(shape.dtype, {1, 1, shape.heads, shape.head_dim});
  const Tensor k(shape.dtype, {1, shape.kv_len, shape.kv_heads, shape.head_dim});
  const Tensor v(shape.dtype, {1, shape.kv_len, shape.kv_heads, shape.head_dim});
  const Tensor o(shape.dtype, {1, 1, shape.heads, shape.head_dim});
  Tensor lengths(kI32, {1});
  lengths.SetInt(static_cast<std::int32_t>(shape.kv_len));
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  exec.num_threads = threads;
  heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
  args.q = q.abi();
  args.k_cache = k.abi();
  args.v_cache = v.abi();
  args.o = o.abi();
  args.cache_lengths = lengths.abi();
  args.exec = &exec;
  std::vector<std::uint8_t> workspace;
  UseWorkspace(HEED_OP_DECODE, args, &exec, &workspace);
  return Time(num_calls, idle_us, [&] { Check(heed_decode(&args)); });
}

std::vector<int> ThreadCounts(int most) {
  std::vector<int> counts;
  for (int threads = 1; threads < most; threads *= 2) counts.push_back(threads);
  counts.push_back(most);
  return counts;
}

void NoWork(void*, std::int64_t) {}

void TwentyMicroseconds(void*, std::int64_t) {
  const double end = Microseconds() + 20;
  while (Microseconds() < end) continue;
}

// 20 us of work for each worker show how far hand-off and collection are from 20 us in all.
void MeasureHandOff(const Options& options) {
  for (const int threads : ThreadCounts(options.threads)) {
    if (threads == 1 || !options.Wants("hand-off")) continue;
    for (const double idle_us : {0.0, 50.0, 500.0, 5000.0}) {
      const int calls = idle_us > 1000 ? std::min(options.num_calls, 50) : options.num_calls;
      Print("hand-off", threads, idle_us,
            Time(calls, idle_us, [&] { heed::core::os::ParallelFor(threads, NoWork, nullptr); }));
      Print("hand-off of 20 us", threads, idle_us, Time(calls, idle_us, [&] {
              heed::core::os::ParallelFor(threads, TwentyMicroseconds, nullptr);
            }));
    }
  }
}

using Measure = Times (*)(const Shape& shape, int threads, int num_calls, double idle_us);

// Back to back, and after the threads have gone to sleep.
void MeasureShape(const Options& options, const std::string& name, const Shape& shape,
                  Measure measure) {
  if (!options.Wants(name)) return;
  for (const int threads : ThreadCounts(options.threads)) {
    for (const double idle_us : {0.0, 500.0}) {
      if (threads == 1 && idle_us > 0) continue;
      Print(name, threads, idle_us, measure(shape, threads, options.num_calls, idle_us));
    }
  }
}

void MeasureCalls(const Options& options) {
  MeasureShape(options, "forward f32 1/1 L 1 D 64", {kF32, 1, 1, 1, 1, 64}, TimeForward);
  for (const heed_dtype_t dtype : {kF32, kBF16}) {
    const std::string type = dtype.bits == 32 ? "f32" : "bf16";
    for (const std::int64_t length : {128, 256, 512}) {
      for (const std::int64_t head_dim : {64, 128}) {
        for (const std::int64_t kv_heads : {8, 2}) {
          const std::string name = "forward " + type + " 8/" + std::to_string(kv_heads) + " L " +
                                   std::to_string(length) + " D " + std::to_string(head_dim);
          MeasureShape(options, name, {dtype, 8, kv_heads, length, length, head_dim}, TimeForward);
        }
      }
    }
    for (const std::int64_t keys : {1024, 4096}) {
      const std::string name = "decode " + type + " 32/8 D 128 keys " + std::to_string(keys);
      MeasureShape(options, name, {dtype, 32, 8, 1, keys, 128}, TimeDecode);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (name == "--calls") options.num_calls = std::atoi(argv[i + 1]);
    if (name == "--case") options.only = argv[i + 1];
  }
  if (options.threads < 2 || options.num_calls < 10 || argc % 2 == 0) {
    std::fprintf(stderr, "usage: short_calls [--threads N >= 2] [--calls N >= 10] [--case TEXT]\n");
    return 2;
  }
  MeasureHandOff(options);
  MeasureCalls(options);
  return 0;
}
