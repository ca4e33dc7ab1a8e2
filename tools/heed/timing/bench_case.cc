#include "bench_case.h"

#include <algorithm>
#include <sstream>
#include <thread>

namespace heed::tools {
namespace {

std::int32_t NumCores() {
  return static_cast<std::int32_t>(std::max(1u, std::thread::hardware_concurrency()));
}

const char* Int8Name(BenchInt8 int8) {
  switch (int8) {
    case BenchInt8::kOff:
      break;
    case BenchInt8::kF32:
      return "i8.f32";
    case BenchInt8::kBf16:
      return "i8.bf16";
    case BenchInt8::kU8:
      return "i8.u8";
    case BenchInt8::kFixed:
      return "i8.fixed";
  }
  return "";
}

std::string CaseName(const BenchCase& bench_case) {
  const ResolvedShape shape = Resolve(bench_case.problem.shape);
  const ScoreOptions& score = bench_case.problem.score;
  std::ostringstream name;
  if (bench_case.problem.bench.op == BenchOp::kBackward) name << "backward.";
  if (bench_case.problem.bench.op == BenchOp::kDecode) name << "decode.";
  if (bench_case.problem.bench.cache == BenchCache::kInt8) name << "kv8.";
  if (bench_case.problem.bench.int8 == BenchInt8::kOff) {
    name << ElementTypeName(bench_case.problem.type.value_or(ElementType::kF32));
  } else {
    name << Int8Name(bench_case.problem.bench.int8);
  }
  if (shape.batch != 1) name << ".b" << shape.batch;
  name << ".q" << shape.q_len;
  if (shape.kv_len != shape.q_len) name << ".kv" << shape.kv_len;
  name << ".h" << shape.num_q_heads;
  if (shape.num_kv_heads != shape.num_q_heads) name << 'x' << shape.num_kv_heads;
  name << ".d" << shape.head_dim;
  if (shape.head_dim_v != shape.head_dim) name << 'x' << shape.head_dim_v;
  if (score.causal == HEED_CAUSAL_ON) name << ".causal";
  if (score.window[0] >= 0 || score.window[1] >= 0) {
    name << ".window" << score.window[0] << ',' << score.window[1];
  }
  if (bench_case.problem.layout == Layout::kHeadsRows) name << ".bhsd";
  name << ".t" << bench_case.num_threads;
  return name.str();
}

struct Variant {
  BenchOp op = BenchOp::kForward;
  ElementType type = ElementType::kF32;
  std::int64_t length = 4096;
  std::int64_t kv_length = -1;  // < 0 = length
  std::int64_t num_q_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t head_dim = 128;
  heed_causal_t causal = HEED_CAUSAL_OFF;
  std::int32_t num_threads = 1;
  BenchInt8 int8 = BenchInt8::kOff;
};

BenchCase MakeCase(const Options& base, const Variant& variant, std::optional<Bar> bar = {}) {
  BenchCase bench_case;
  bench_case.problem = base;
  bench_case.problem.bench.op = variant.op;
  bench_case.problem.bench.int8 = variant.int8;
  bench_case.problem.type = variant.type;
  bench_case.problem.shape = {.num_q_heads = variant.num_q_heads,
                              .num_kv_heads = variant.num_kv_heads,
                              .q_len = variant.length,
                              .kv_len = variant.kv_length,
                              .head_dim = variant.head_dim,
                              .features = {}};
  bench_case.problem.score = ScoreOptions{};
  bench_case.problem.score.causal = variant.causal;
  bench_case.problem.exec.num_threads = variant.num_threads;
  bench_case.num_threads = variant.num_threads;
  bench_case.bar = std::move(bar);
  bench_case.name = CaseName(bench_case);
  return bench_case;
}

Bar RoofBar(double fraction) { return {BarKind::kRoofFraction, fraction, ""}; }

// fp32 at L = 4096, the cells of the project's table.
void AddRoofCells(const Options& base, std::int32_t num_threads, std::vector<BenchCase>* cases) {
  const struct {
    std::int64_t head_dim;
    heed_causal_t causal;
    double fraction;
  } cells[] = {{128, HEED_CAUSAL_OFF, 0.90},
               {64, HEED_CAUSAL_OFF, 0.86},
               {128, HEED_CAUSAL_ON, 0.87},
               {64, HEED_CAUSAL_ON, 0.83}};
  for (const auto& cell : cells) {
    cases->push_back(MakeCase(
        base, {.head_dim = cell.head_dim, .causal = cell.causal, .num_threads = num_threads},
        RoofBar(cell.fraction)));
  }
}

std::vector<BenchCase> BackwardCases(const Options& base) {
  std::vector<BenchCase> cases;
  constexpr double kBar = 0.65;
  cases.push_back(MakeCase(base, {.op = BenchOp::kBackward}, RoofBar(kBar)));
  for (const std::int64_t head_dim : {64, 128}) {
    for (const heed_causal_t causal : {HEED_CAUSAL_OFF, HEED_CAUSAL_ON}) {
      for (const std::int64_t length : {128, 1024, 4096}) {
        cases.push_back(MakeCase(base, {.op = BenchOp::kBackward,
                                        .length = length,
                                        .num_q_heads = 8,
                                        .num_kv_heads = 2,
                                        .head_dim = head_dim,
                                        .causal = causal,
                                        .num_threads = NumCores()}));
      }
    }
  }
  return cases;
}

Bar MixedBar(double fraction) { return {BarKind::kMixedFraction, fraction, ""}; }

// fp32 first: the int8 cases are compared with it.
std::vector<BenchCase> Int8Cases(const Options& base) {
  std::vector<BenchCase> cases;
  cases.push_back(MakeCase(base, {}));
  const std::string f32_full = cases[0].name;
  cases.push_back(MakeCase(base, {.int8 = BenchInt8::kF32}, MixedBar(0.87)));
  cases.push_back(MakeCase(base, {.int8 = BenchInt8::kFixed}));
  cases.push_back(MakeCase(base, {.int8 = BenchInt8::kBf16}, MixedBar(0.83)));
  cases.push_back(MakeCase(base, {.int8 = BenchInt8::kU8}, MixedBar(0.79)));
  cases.push_back(MakeCase(base, {.num_q_heads = 2, .num_kv_heads = 2, .int8 = BenchInt8::kU8},
                           Bar{BarKind::kSpeedup, 3.0, f32_full}));
  cases.push_back(MakeCase(base, {.head_dim = 64, .int8 = BenchInt8::kF32}));
  cases.push_back(MakeCase(base, {.head_dim = 64, .int8 = BenchInt8::kU8}, MixedBar(0.70)));
  for (const std::int64_t length : {1024, 4096}) {
    cases.push_back(MakeCase(base, {.length = length,
                                    .num_q_heads = 8,
                                    .num_kv_heads = 2,
                                    .causal = HEED_CAUSAL_ON,
                                    .num_threads = NumCores(),
                                    .int8 = BenchInt8::kU8}));
  }
  return cases;
}

// One token against interleaved int8 caches of 8 KV heads in both orders of memory, of 1.25 GiB:
// four times the largest last-level cache it has run on.
std::vector<BenchCase> DecodeCases(const Options& base) {
  std::vector<BenchCase> cases;
  for (const Layout layout : {Layout::kRowsHeads, Layout::kHeadsRows}) {
    for (const std::int64_t group : {1, 4, 8}) {
      Options options = base;
      options.layout = layout;
      options.bench.cache = BenchCache::kInt8;
      const double fraction = group <= 4 ? 0.80 : 0.60;
      cases.push_back(MakeCase(options,
                               {.op = BenchOp::kDecode,
                                .type = ElementType::kBF16,
                                .length = 1,
                                .kv_length = 655360,
                                .num_q_heads = 8 * group,
                                .num_kv_heads = 8,
                                .num_threads = NumCores()},
                               Bar{BarKind::kReadFraction, fraction, ""}));
    }
  }
  return cases;
}

std::vector<BenchCase> ForwardCases(const Options& options) {
  std::vector<BenchCase> cases;
  AddRoofCells(options, 1, &cases);
  const std::string f32_full = cases[0].name;
  AddRoofCells(options, 2, &cases);
  cases.push_back(
      MakeCase(options, {.type = ElementType::kBF16}, Bar{BarKind::kSpeedup, 1.7, f32_full}));
  cases.push_back(MakeCase(options, {.type = ElementType::kF16}));
  // The heads of a small language model: 3 query heads share a key-value head.
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    cases.push_back(MakeCase(options, {.type = type,
                                       .length = 2048,
                                       .num_q_heads = 9,
                                       .num_kv_heads = 3,
                                       .head_dim = 64,
                                       .causal = HEED_CAUSAL_ON,
                                       .num_threads = NumCores()}));
  }
  for (const std::int64_t length : {64, 128, 256, 512, 1024, 2048, 8192}) {
    cases.push_back(MakeCase(options, {.length = length, .causal = HEED_CAUSAL_ON}));
  }
  constexpr double kExtraMemoryLimitBytes = 32e6;
  BenchCase memory =
      MakeCase(options, {.length = 131072, .causal = HEED_CAUSAL_ON, .num_threads = NumCores()},
               Bar{BarKind::kExtraMemoryBytes, kExtraMemoryLimitBytes, ""});
  memory.repetition = Repetition::kOnce;
  cases.push_back(std::move(memory));
  return cases;
}

}  // namespace

std::vector<BenchCase> PresetCases(const Options& options) {
  if (options.bench.preset == "cpu-backward") return BackwardCases(options);
  if (options.bench.preset == "cpu-int8") return Int8Cases(options);
  if (options.bench.preset == "cpu-decode") return DecodeCases(options);
  std::vector<BenchCase> cases = ForwardCases(options);
  if (options.bench.preset != "cpu") return cases;
  for (const auto& more : {BackwardCases(options), Int8Cases(options), DecodeCases(options)}) {
    for (const BenchCase& other : more) {
      const auto has_name = [&](const BenchCase& mine) { return mine.name == other.name; };
      if (std::none_of(cases.begin(), cases.end(), has_name)) cases.push_back(other);
    }
  }
  return cases;
}

std::vector<BenchCase> OptionCases(const Options& options) {
  std::vector<std::int64_t> lengths = options.bench.lengths;
  if (lengths.empty()) lengths = {options.shape.q_len};
  std::vector<std::int32_t> thread_counts = options.bench.thread_counts;
  if (thread_counts.empty()) {
    thread_counts = {options.exec.num_threads > 0 ? options.exec.num_threads : NumCores()};
  }
  std::vector<BenchCase> cases;
  for (const std::int64_t length : lengths) {
    for (const std::int32_t num_threads : thread_counts) {
      BenchCase bench_case;
      bench_case.problem = options;
      bench_case.problem.shape.q_len = length;
      if (!options.bench.lengths.empty()) bench_case.problem.shape.kv_len = -1;
      bench_case.problem.exec.num_threads = num_threads;
      bench_case.num_threads = num_threads;
      bench_case.name = CaseName(bench_case);
      cases.push_back(std::move(bench_case));
    }
  }
  return cases;
}

}  // namespace heed::tools
