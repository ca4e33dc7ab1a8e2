// The parts of the int8 forward pass, timed one by one on one tile and one block: their share of
// the time and, of the two products, the fraction of the peak of their instructions, timed beside
// them. The peak is that of vectors: a matrix unit may exceed it.
//
// usage: int8_components [target] [head_dim ...]     (every target, 64 and 128)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/roof/roof.h"
#include "core/os/os.h"
#include "cpu/int8_layout.h"
#include "cpu/int8_pack.h"
#include "cpu/int8_softmax.h"
#include "int8/int8_call.h"

namespace heed::test {
namespace {

using bench::RoofKind;
using cpu::kInt8Block;
using cpu::kInt8FloatBlock;
using cpu::kInt8TileRows;

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double SecondsOf(const std::function<void()>& body) {
  body();
  std::int64_t runs = 1;
  for (;;) {
    const double start = ThreadSeconds();
    for (std::int64_t n = 0; n < runs; ++n) body();
    const double seconds = ThreadSeconds() - start;
    if (seconds > 0.02) return seconds / static_cast<double>(runs);
    runs *= 4;
  }
}

// Operations a second of the fastest loop of the kind; 0 without one.
double PeakOf(RoofKind kind) {
  const bench::RoofLoop* roof = bench::BestRoof(kind);
  return roof == nullptr ? 0.0
                         : bench::MeasureOpsPerSecond(*roof, 1, 0.01, bench::Clock::kThreadCpu);
}

struct Part {
  const char* name;
  double ops;  // multiplications and additions; 0 = not a product
  RoofKind roof;
  std::function<void()> body;
};

class Memory {
 public:
  template <class T>
  T* Take(std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    blocks_.emplace_back(core::os::AllocateAligned(bytes), core::os::FreeAligned);
    std::memset(blocks_.back().get(), 0, bytes);
    return static_cast<T*>(blocks_.back().get());
  }

 private:
  std::vector<std::unique_ptr<void, void (*)(void*)>> blocks_;
};

void Report(const NamedInt8Kernel& named, const char* mode, std::int64_t head_dim,
            const std::vector<Part>& parts) {
  const char* kernel = named.name;
  const auto start = named.kernel->start_thread, stop = named.kernel->stop_thread;
  constexpr int kRounds = 5;
  std::vector<std::vector<double>> seconds(parts.size()), fractions(parts.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t n = 0; n < parts.size(); ++n) {
      const double before = PeakOf(parts[n].roof);
      // The peak's loop may use the matrix unit, too.
      if (start != nullptr) start();
      seconds[n].push_back(SecondsOf(parts[n].body));
      if (stop != nullptr) stop();
      const double peak = 0.5 * (before + PeakOf(parts[n].roof));
      fractions[n].push_back(peak > 0.0 ? parts[n].ops / seconds[n].back() / peak : 0.0);
    }
  }
  const auto median = [](std::vector<double> samples) {
    std::nth_element(samples.begin(), samples.begin() + kRounds / 2, samples.end());
    return samples[kRounds / 2];
  };
  double total = 0.0;
  for (const auto& samples : seconds) total += median(samples);
  std::printf("%-10s %-5s D %3lld:", kernel, mode, static_cast<long long>(head_dim));
  for (std::size_t n = 0; n < parts.size(); ++n) {
    std::printf("  %s %.0f %%", parts[n].name, 100.0 * median(seconds[n]) / total);
    if (parts[n].ops > 0.0) std::printf(" (%.2f of peak)", median(fractions[n]));
  }
  std::printf("  in all %.2f us\n", 1e6 * total);
  std::fflush(stdout);
}

void RunKernel(const NamedInt8Kernel& named, std::int64_t head_dim) {
  const cpu::Int8Kernel& kernel = *named.kernel;
  core::ForwardProblem problem;
  problem.shape.batch = problem.shape.num_kv_heads = 1;
  problem.shape.max_kv_len = kInt8FloatBlock;
  problem.shape.head_dim = problem.shape.head_dim_v = head_dim;
  const cpu::Int8Layout layout = cpu::MakeInt8Layout(problem);
  Memory memory;
  auto* q = memory.Take<std::uint8_t>(static_cast<std::int64_t>(layout.query_bytes));
  auto* keys = memory.Take<std::int8_t>(kInt8FloatBlock * cpu::Int8KeyRowBytes(layout.num_steps));
  auto* values = memory.Take<std::int8_t>(kInt8FloatBlock * layout.padded_dims * 2);
  auto* bias = memory.Take<std::int32_t>(kInt8FloatBlock);
  auto* factors = memory.Take<float>(kInt8FloatBlock);
  auto* scores = memory.Take<float>(kInt8FloatBlock * kInt8TileRows);
  auto* wide = memory.Take<float>(kInt8FloatBlock * layout.wide_stride);
  auto* o = memory.Take<float>(layout.padded_dims * kInt8TileRows);
  auto* rows = memory.Take<float>(6 * kInt8TileRows);
  float *row_factor = rows, *row_max = rows + kInt8TileRows, *row_sum = row_max + kInt8TileRows,
        *decay = row_sum + kInt8TileRows, *block_max = decay + kInt8TileRows;
  std::fill_n(row_factor, kInt8TileRows, 0.1f);
  cpu::Int8Rows fixed;
  cpu::StartInt8Rows(&fixed);
  auto* raw_max = reinterpret_cast<std::int32_t*>(block_max);
  const cpu::Int8Scale scale = cpu::MakeInt8Scale(0.1);

  const std::int64_t key_bytes = kernel.key_format == cpu::Int8KeyFormat::kRows
                                     ? cpu::Int8KeyRowBytes(layout.num_steps)
                                     : layout.num_steps * cpu::kInt8Group;
  const auto score = [&](void (*function)(const cpu::Int8ScoresArgs&), int num_keys) {
    for (int key = 0; key < num_keys; key += kInt8Block) {
      function({q, keys + key * key_bytes, layout.num_steps, bias + key, kInt8Block,
                scores + key * kInt8TileRows, block_max, factors + key});
    }
  };
  cpu::Int8WidenArgs widen = {values,          0,   layout.padded_dims, layout.wide_stride,
                              kInt8FloatBlock, wide};
  widen.tile_stride_bytes = kInt8FloatBlock / cpu::kInt8Group * cpu::kInt8StepBytes;
  cpu::Int8ValuesArgs product = {scores,
                                 wide,
                                 widen.tile_stride_bytes,
                                 layout.wide_stride,
                                 layout.padded_dims,
                                 kInt8FloatBlock,
                                 decay,
                                 1.0f,
                                 o};
  const double ops = 2.0 * kInt8TileRows * static_cast<double>(head_dim);
  // A block's values are widened once for the tiles of a range.
  const auto tiles = static_cast<int>(cpu::kInt8TilesPerRange);
  const struct {
    const char* name;
    RoofKind roof;
  } modes[] = {{"f32", RoofKind::kFmaF32}, {"bf16", RoofKind::kDotBf16}, {"u8", RoofKind::kDotI8}};
  const cpu::Int8ScoresArgs whole = {q,      keys,      layout.num_steps, bias, kInt8FloatBlock,
                                     scores, block_max, factors};
  for (std::size_t n = 0; n < std::size(modes); ++n) {
    const cpu::Int8FloatMode& mode = kernel.modes[n];
    if (mode.weights == nullptr) continue;
    std::vector<Part> parts;
    const cpu::Int8FloatWeightsArgs weights = {scores,  block_max, kInt8FloatBlock, row_factor,
                                               row_max, row_sum,   decay,           nullptr};
    if (mode.weigh != nullptr) {
      parts.push_back({"scores and weights", 0.0, RoofKind::kFmaF32, [&] {
                         mode.weigh({whole, weights});
                       }});
    } else {
      parts.push_back({"scores", ops * kInt8FloatBlock, RoofKind::kDotI8,
                       [&] { score(kernel.scaled_scores, kInt8FloatBlock); }});
      parts.push_back({"weights", 0.0, RoofKind::kFmaF32, [&] { mode.scaled_weights(weights); }});
    }
    int turn = 0;
    if (mode.widen != nullptr) {
      parts.push_back({"widening", 0.0, RoofKind::kFmaF32, [&] {
                         if (turn++ % tiles == 0) mode.widen(widen);
                       }});
    }
    product.values = mode.widen != nullptr ? static_cast<const void*>(wide) : values;
    parts.push_back(
        {"values", ops * kInt8FloatBlock, modes[n].roof, [&] { mode.values(product); }});
    Report(named, modes[n].name, head_dim, parts);
  }

  product.values = wide;
  product.num_keys = kInt8Block;
  product.rescale = nullptr;
  int turn = 0;
  const std::vector<Part> parts = {
      {"scores", ops * kInt8Block, RoofKind::kDotI8, [&] { score(kernel.scores, kInt8Block); }},
      {"weights", 0.0, RoofKind::kFmaF32,
       [&] {
         std::fill_n(raw_max, kInt8TileRows, 0);
         cpu::RaiseInt8Rows(raw_max, scale, &fixed, decay);
         kernel.weights({reinterpret_cast<std::int32_t*>(scores), kInt8Block, fixed.max,
                         fixed.start, scale.multiplier, scale.largest_distance, raw_max});
       }},
      {"widening", 0.0, RoofKind::kFmaF32,
       [&] {
         if (turn++ % tiles == 0) kernel.widen(widen);
       }},
      {"values", ops * kInt8Block, RoofKind::kFmaF32, [&] { kernel.values(product); }}};
  widen.num_keys = kInt8Block;
  Report(named, "fixed", head_dim, parts);
}

}  // namespace
}  // namespace heed::test

int main(int argc, char** argv) {
  std::string target;
  std::vector<std::int64_t> head_dims;
  for (int i = 1; i < argc; ++i) {
    const int head_dim = std::atoi(argv[i]);
    if (head_dim > 0) head_dims.push_back(std::min(head_dim, 576));
    if (head_dim <= 0) target = argv[i];
  }
  if (head_dims.empty()) head_dims = {64, 128};
  for (const auto& named : heed::test::Int8KernelsHere()) {
    if (target.empty() ? named.is_emulated : target != named.name) continue;
    for (const std::int64_t head_dim : head_dims) heed::test::RunKernel(named, head_dim);
  }
  return 0;
}
