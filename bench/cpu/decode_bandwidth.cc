// heed_decode beside a plain read loop over the same bytes, in one run: bytes of keys and values
// per second, and their fraction of the read bandwidth. Slices alternate: read, decode, read, ...;
// a fraction is that of a decode slice over the mean of the reads around it.
//
// usage: decode_bandwidth [--threads N] [--rounds N] [--megabytes N] [--case TEXT] [--group N]
// One JSON object a line. 8 KV heads, D = 128, one new token, caches as large as asked for.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "heed/heed.h"

namespace {

constexpr std::int64_t kHeads = 8, kDim = 128;
constexpr heed_dtype_t kF32 = {HEED_DTYPE_FLOAT, 32, 1}, kBF16 = {HEED_DTYPE_BFLOAT, 16, 1},
                       kU8 = {HEED_DTYPE_UINT, 8, 1}, kI32 = {HEED_DTYPE_INT, 32, 1};

enum class HeadOrder { kWithinToken, kOutermost };  // [B,S,H,D] or [B,H,S,D] in memory

struct Case {
  const char* name;
  heed_kv_format_t format;
  heed_kv_layout_t layout;
  heed_dtype_t q_dtype;
  std::int64_t row_bytes;
  HeadOrder order;
};

constexpr Case kCases[] = {
    {"int8-interleaved", HEED_KV_INT8, HEED_KV_LAYOUT_INTERLEAVED, kBF16, 128,
     HeadOrder::kWithinToken},
    {"int8-interleaved-heads-first", HEED_KV_INT8, HEED_KV_LAYOUT_INTERLEAVED, kBF16, 128,
     HeadOrder::kOutermost},
    {"int8-rows", HEED_KV_INT8, HEED_KV_LAYOUT_ROWS, kBF16, 128, HeadOrder::kWithinToken},
    {"bf16", HEED_KV_PLAIN, HEED_KV_LAYOUT_ROWS, kBF16, 256, HeadOrder::kWithinToken},
    {"f32", HEED_KV_PLAIN, HEED_KV_LAYOUT_ROWS, kF32, 512, HeadOrder::kWithinToken},
    {"fp8", HEED_KV_FP8_E4M3, HEED_KV_LAYOUT_ROWS, kBF16, 128, HeadOrder::kWithinToken},
    {"int4", HEED_KV_INT4, HEED_KV_LAYOUT_ROWS, kBF16, 64, HeadOrder::kWithinToken},
    {"q8_0", HEED_KV_Q8_0, HEED_KV_LAYOUT_ROWS, kBF16, 136, HeadOrder::kWithinToken},
    {"q4_0", HEED_KV_Q4_0, HEED_KV_LAYOUT_ROWS, kBF16, 72, HeadOrder::kWithinToken},
};

struct Options {
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int rounds = 7;
  std::int64_t megabytes = 512;  // of keys and values together
  std::string only;
  std::int64_t group = 0;  // 0 = 1, 4 and 8
};

class Tensor {
 public:
  Tensor(void* data, heed_dtype_t dtype, std::vector<std::int64_t> shape,
         std::vector<std::int64_t> strides = {})
      : shape_(std::move(shape)), strides_(std::move(strides)) {
    abi_ = {data,  {HEED_DEVICE_CPU, 0}, static_cast<std::int32_t>(shape_.size()),
            dtype, shape_.data(),        strides_.empty() ? nullptr : strides_.data(),
            0};
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  const heed_tensor_t* abi() const { return &abi_; }

 private:
  std::vector<std::int64_t> shape_, strides_;
  heed_tensor_t abi_;
};

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

typedef std::uint64_t Vector __attribute__((vector_size(32)));

// Reads every byte of [begin, end), in four streams of vectors that keep no other state. Asks for
// lines a page ahead, where hardware prefetchers stop.
std::uint64_t ReadAll(const std::uint8_t* begin, const std::uint8_t* end) {
  constexpr int kAheadBytes = 4096, kReadOnly = 0, kSecondLevel = 2;
  Vector sums[4] = {};
  for (; begin + 128 <= end; begin += 128) {
    __builtin_prefetch(begin + kAheadBytes, kReadOnly, kSecondLevel);
    __builtin_prefetch(begin + kAheadBytes + 64, kReadOnly, kSecondLevel);
    for (int n = 0; n < 4; ++n) {
      Vector x;
      std::memcpy(&x, begin + 32 * n, sizeof(x));
      sums[n] ^= x;
    }
  }
  const Vector all = (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
  return all[0] ^ all[1] ^ all[2] ^ all[3];
}

// Bytes per second of `threads` threads that each read a contiguous part.
double ReadBandwidth(std::span<const std::uint8_t> memory, int threads) {
  const std::size_t part_bytes = memory.size() / static_cast<std::size_t>(threads) / 128 * 128;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 16);
  std::vector<double> begins(static_cast<std::size_t>(threads)), ends(begins.size());
  std::vector<std::thread> pool;
  for (int thread = 0; thread < threads; ++thread) {
    pool.emplace_back([&, thread] {
      const auto n = static_cast<std::size_t>(thread);
      const std::uint8_t* first = memory.data() + n * part_bytes;
      begins[n] = Seconds();
      sums[n * 16] = ReadAll(first, first + part_bytes);
      ends[n] = Seconds();
    });
  }
  for (std::thread& thread : pool) thread.join();
  volatile std::uint64_t sink = sums[0];
  (void)sink;
  // From the first start to the last end, as the call under test is timed.
  const double seconds =
      *std::max_element(ends.begin(), ends.end()) - *std::min_element(begins.begin(), begins.end());
  return static_cast<double>(part_bytes) * threads / seconds;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Check(heed_status_t status) {
  if (status == HEED_OK) return;
  std::fprintf(stderr, "%s\n", heed_last_error());
  std::exit(1);
}

struct Run {
  const Case& of;
  std::int64_t batch, group;
};

void Measure(const Run& run, const Options& options, std::span<std::uint8_t> memory) {
  const Case& of = run.of;
  const bool is_plain = of.format == HEED_KV_PLAIN;
  const std::int64_t elems = is_plain ? kDim : of.row_bytes;
  const heed_dtype_t dtype = is_plain ? of.q_dtype : kU8;
  const std::int64_t half_bytes = static_cast<std::int64_t>(memory.size()) / 2;
  const std::int64_t slots = half_bytes / (kHeads * of.row_bytes * run.batch) / 128 * 128;
  const bool heads_first = of.order == HeadOrder::kOutermost;
  const auto strides = [&](std::int64_t row_elems) -> std::vector<std::int64_t> {
    if (!heads_first) return {};
    return {slots * kHeads * row_elems, row_elems, slots * row_elems, 1};
  };
  const std::vector<std::int64_t> shape = {run.batch, slots, kHeads, elems};
  const std::vector<std::int64_t> scale_shape = {run.batch, slots, kHeads, 1};
  std::vector<float> scale_data(static_cast<std::size_t>(run.batch * slots * kHeads), 0.01f);
  const Tensor k(memory.data(), dtype, shape, strides(elems));
  const Tensor v(memory.data() + run.batch * slots * kHeads * of.row_bytes, dtype, shape,
                 strides(elems));
  const Tensor scales(scale_data.data(), kF32, scale_shape, strides(1));
  std::vector<float> q_data(static_cast<std::size_t>(run.batch * kHeads * run.group * kDim));
  std::vector<float> o_data(q_data.size());
  for (std::size_t i = 0; i < q_data.size(); ++i) {
    const float value = 0.01f * static_cast<float>(i % 17);
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if (of.q_dtype.bits == 32) q_data[i] = value;
    if (of.q_dtype.bits == 16) {
      reinterpret_cast<std::uint16_t*>(q_data.data())[i] = static_cast<std::uint16_t>(bits >> 16);
    }
  }
  const std::vector<std::int64_t> rows = {run.batch, 1, kHeads * run.group, kDim};
  const Tensor q(q_data.data(), of.q_dtype, rows), o(o_data.data(), of.q_dtype, rows);
  std::vector<std::int32_t> length_data(static_cast<std::size_t>(run.batch),
                                        static_cast<std::int32_t>(slots));
  const Tensor lengths(length_data.data(), kI32, {run.batch});

  heed_kv_quant_args_t quant = HEED_KV_QUANT_ARGS_INIT;
  quant.format = of.format;
  quant.layout = of.layout;
  if (!is_plain && of.format < HEED_KV_Q8_0) quant.k_scales = quant.v_scales = scales.abi();
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  exec.num_threads = options.threads;
  heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
  args.q = q.abi();
  args.k_cache = k.abi();
  args.v_cache = v.abi();
  args.o = o.abi();
  args.cache_lengths = lengths.abi();
  args.quant = &quant;
  args.exec = &exec;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  Check(heed_plan(HEED_OP_DECODE, &args, &plan));
  std::vector<std::uint8_t> workspace(plan.workspace_bytes + 64);
  exec.workspace =
      workspace.data() + (64 - reinterpret_cast<std::uintptr_t>(workspace.data()) % 64);
  exec.workspace_bytes = plan.workspace_bytes;

  const double bytes = 2.0 * static_cast<double>(run.batch * slots * kHeads * of.row_bytes);
  std::vector<double> reads, decodes, fractions;
  double before = ReadBandwidth(memory, options.threads);
  Check(heed_decode(&args));
  for (int round = 0; round < options.rounds; ++round) {
    const double begin = Seconds();
    Check(heed_decode(&args));
    const double bandwidth = bytes / (Seconds() - begin);
    const double after = ReadBandwidth(memory, options.threads);
    reads.push_back((before + after) / 2);
    decodes.push_back(bandwidth);
    fractions.push_back(bandwidth / reads.back());
    before = after;
  }
  std::printf(
      "{\"case\": \"%s\", \"batch\": %lld, \"group\": %lld, \"keys\": %lld, \"threads\": %d, "
      "\"kernel\": \"%s\", \"splits\": %lld, \"read_gbps\": %.1f, \"decode_gbps\": %.1f, "
      "\"fraction\": %.3f, \"fraction_min\": %.3f}\n",
      of.name, static_cast<long long>(run.batch), static_cast<long long>(run.group),
      static_cast<long long>(slots), options.threads, plan.kernel_id,
      static_cast<long long>(plan.num_splits), Median(reads) / 1e9, Median(decodes) / 1e9,
      Median(fractions), *std::min_element(fractions.begin(), fractions.end()));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (name == "--rounds") options.rounds = std::atoi(argv[i + 1]);
    if (name == "--megabytes") options.megabytes = std::atoll(argv[i + 1]);
    if (name == "--case") options.only = argv[i + 1];
    if (name == "--group") options.group = std::atoll(argv[i + 1]);
  }
  if (options.threads < 1 || options.rounds < 1 || options.megabytes < 16 || argc % 2 == 0) {
    std::fprintf(stderr,
                 "usage: decode_bandwidth [--threads N] [--rounds N] [--megabytes N >= 16] "
                 "[--case TEXT] [--group N]\n");
    return 2;
  }
  // Aligned as frameworks align tensors: rows at odd addresses would take two lines for one.
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t num_bytes = static_cast<std::size_t>(options.megabytes) << 20;
  std::vector<std::uint8_t> allocated(num_bytes + kPageBytes);
  const auto address = reinterpret_cast<std::uintptr_t>(allocated.data());
  const std::span<std::uint8_t> memory{
      allocated.data() + (kPageBytes - address % kPageBytes) % kPageBytes, num_bytes};
  // Bytes that are small numbers in every format, so that nothing overflows.
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::uint8_t>((i * 0x9E3779B97F4A7C15ull >> 40) & 0x3F);
  }
  for (const Case& of : kCases) {
    if (!options.only.empty() && options.only != of.name) continue;
    for (const std::int64_t batch : {1, 4}) {
      for (const std::int64_t group : {1, 4, 8}) {
        if (options.group == 0 || options.group == group)
          Measure({of, batch, group}, options, memory);
      }
    }
  }
  return 0;
}
