#include "core/tune/problem_class.h"

#include <bit>
#include <charconv>
#include <limits>

#include "core/status.h"

namespace heed::core::tune {
namespace {

constexpr std::array<const char*, kNumNumbers> kNumberNames = {
    "d", "dv", "heads", "group", "sq", "skv", "rows", "left", "right", "page", "threads"};

enum class Feature : std::uint8_t {
  kLse,
  kAligned,  // rows of q, k, v and o can be moved 16 bytes at a time
  kTopLeft,  // where it makes a difference
  kSoftcap,
  kAlibi,
  kBias,
  kBiasF32,
  kMask,
  kSinks,
  kDropout,
  kPackedQ,
  kPackedKv,
  kSequsedQ,
  kSequsedKv,
  kPaged,
  kDeterministic,
  kDLse,
  kDBias,
  kDSinks
};
constexpr std::array<const char*, 19> kFeatureNames = {
    "lse",   "aligned",       "top-left", "softcap",  "alibi",     "bias",      "bias-f32",
    "mask",  "sinks",         "dropout",  "packed-q", "packed-kv", "seqused-q", "seqused-kv",
    "paged", "deterministic", "d-lse",    "d-bias",   "d-sinks"};
static_assert(static_cast<std::size_t>(Feature::kDSinks) + 1 == kFeatureNames.size());

void Set(ProblemClass* problem, Feature feature, bool is_on) {
  if (is_on) problem->features |= 1u << static_cast<unsigned>(feature);
}

std::int64_t& At(ProblemClass* problem, Number number) {
  return problem->numbers[static_cast<std::size_t>(number)];
}

constexpr std::uint64_t kVectorBytes = 16;

bool IsAligned(const RowsView& view, std::int64_t num_dims) {
  if (!view.present()) return true;
  const std::size_t element_bytes = DTypeBytes(view.dtype);
  const auto is_multiple = [&](std::int64_t elems) {
    return static_cast<std::uint64_t>(elems) * element_bytes % kVectorBytes == 0;
  };
  return reinterpret_cast<std::uintptr_t>(view.data) % kVectorBytes == 0 &&
         is_multiple(view.batch_stride_elems) && is_multiple(view.row_stride_elems) &&
         is_multiple(view.head_stride_elems) && is_multiple(num_dims);
}

std::int64_t Product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max()
                                                : product;
}

bool ParseInteger(std::string_view text, std::int64_t* value) {
  const char* end = text.data() + text.size();
  const std::from_chars_result parsed = std::from_chars(text.data(), end, *value);
  return parsed.ec == std::errc{} && parsed.ptr == end;
}

// The text before the next space, taken off.
std::string_view TakeWord(std::string_view* text) {
  const std::size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

bool ParseOp(std::string_view word, Op* op) {
  for (const Op known : {Op::kForward, Op::kBackward}) {
    if (word != OpName(known)) continue;
    *op = known;
    return true;
  }
  return false;
}

bool ParseDType(std::string_view word, DType* dtype) {
  for (const DType known : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (word != DTypeName(known)) continue;
    *dtype = known;
    return true;
  }
  return false;
}

constexpr std::string_view kWith = "with=";
constexpr std::string_view kNothing = "nothing";

bool ParseFeatures(std::string_view names, std::uint32_t* features) {
  *features = 0;
  if (names == kNothing) return true;
  while (!names.empty()) {
    const std::size_t end = std::min(names.find('+'), names.size());
    std::size_t found = 0;
    while (found < kFeatureNames.size() && names.substr(0, end) != kFeatureNames[found]) ++found;
    if (found == kFeatureNames.size()) return false;
    *features |= 1u << found;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return *features != 0;
}

}  // namespace

std::size_t HashOfClass::operator()(const ProblemClass& problem) const {
  constexpr std::uint64_t kFnvPrime = 0x100000001b3u;
  std::uint64_t hash = (static_cast<std::uint64_t>(problem.op) << 40) ^
                       (static_cast<std::uint64_t>(problem.dtype) << 32) ^ problem.features;
  for (const std::int64_t number : problem.numbers) {
    hash = (hash ^ static_cast<std::uint64_t>(number)) * kFnvPrime;
  }
  return static_cast<std::size_t>(hash ^ (hash >> 32));
}

std::int64_t RoundDown(std::int64_t x) {
  constexpr int kKeptBits = 3;
  if (x < (1 << kKeptBits)) return x;
  const int dropped = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(x))) - kKeptBits;
  return (x >> dropped) << dropped;
}

ProblemClass ClassOf(const ForwardProblem& problem, std::int64_t num_threads) {
  ProblemClass result;
  result.op = Op::kForward;
  result.dtype = problem.dtype();
  const Shape& shape = problem.shape;
  const ScoreRule& score = problem.score;
  const device::WindowRule& window = score.window;
  At(&result, Number::kHeadDim) = shape.head_dim;
  At(&result, Number::kHeadDimV) = shape.head_dim_v;
  At(&result, Number::kHeads) = RoundDown(Product(shape.batch, shape.num_q_heads));
  At(&result, Number::kGroup) = shape.group;
  At(&result, Number::kQueries) = RoundDown(shape.max_q_len);
  At(&result, Number::kKeys) = RoundDown(shape.max_kv_len);
  const bool is_packed = problem.q_packing == Packing::kPacked;
  At(&result, Number::kRows) = is_packed ? RoundDown(shape.total_q_rows) : 0;
  At(&result, Number::kLeft) = RoundDown(window.left);
  At(&result, Number::kRight) = RoundDown(window.right);
  At(&result, Number::kPageSlots) =
      problem.block_table.present() ? problem.block_table.page_slots : 0;
  At(&result, Number::kThreads) = num_threads;

  Set(&result, Feature::kLse, problem.lse.present());
  Set(&result, Feature::kAligned,
      IsAligned(problem.q, shape.head_dim) && IsAligned(problem.k, shape.head_dim) &&
          IsAligned(problem.v, shape.head_dim_v) && IsAligned(problem.o, shape.head_dim_v));
  const bool is_bounded = window.left >= 0 || window.right >= 0;
  Set(&result, Feature::kTopLeft,
      is_bounded && window.alignment == device::Alignment::kTopLeft &&
          shape.max_q_len != shape.max_kv_len);
  Set(&result, Feature::kSoftcap, score.softcap > 0.0);
  Set(&result, Feature::kAlibi, score.alibi_slopes.present());
  Set(&result, Feature::kBias, score.bias.present());
  Set(&result, Feature::kBiasF32, score.bias.present() && score.bias.dtype == DType::kF32);
  Set(&result, Feature::kMask, score.mask.present());
  Set(&result, Feature::kSinks, score.sinks.present());
  Set(&result, Feature::kDropout, score.dropout.active());
  Set(&result, Feature::kPackedQ, is_packed);
  Set(&result, Feature::kPackedKv, problem.kv_packing == Packing::kPacked);
  Set(&result, Feature::kSequsedQ, problem.seqused_q.present());
  Set(&result, Feature::kSequsedKv, problem.seqused_kv.present());
  Set(&result, Feature::kPaged, problem.block_table.present());
  return result;
}

ProblemClass ClassOf(const BackwardProblem& problem, std::int64_t num_threads) {
  ProblemClass result = ClassOf(problem.forward, num_threads);
  result.op = Op::kBackward;
  Set(&result, Feature::kDeterministic, problem.forward.exec.deterministic);
  Set(&result, Feature::kDLse, problem.d_lse.present());
  Set(&result, Feature::kDBias, problem.d_bias.present());
  Set(&result, Feature::kDSinks, problem.d_sinks.present());
  return result;
}

std::string ClassText(const ProblemClass& problem) {
  std::string text = std::string(OpName(problem.op)) + " " + DTypeName(problem.dtype);
  for (std::size_t at = 0; at < kNumNumbers; ++at) {
    text += std::string(" ") + kNumberNames[at] + "=" + std::to_string(problem.numbers[at]);
  }
  std::string names;
  for (std::size_t at = 0; at < kFeatureNames.size(); ++at) {
    if ((problem.features >> at & 1u) == 0) continue;
    if (!names.empty()) names += '+';
    names += kFeatureNames[at];
  }
  return text + " " + std::string(kWith) + (names.empty() ? std::string(kNothing) : names);
}

bool ParseClass(std::string_view text, ProblemClass* problem) {
  ProblemClass parsed;
  if (!ParseOp(TakeWord(&text), &parsed.op) || !ParseDType(TakeWord(&text), &parsed.dtype)) {
    return false;
  }
  for (std::size_t at = 0; at < kNumNumbers; ++at) {
    const std::string_view word = TakeWord(&text);
    const std::string prefix = std::string(kNumberNames[at]) + "=";
    if (!word.starts_with(prefix) ||
        !ParseInteger(word.substr(prefix.size()), &parsed.numbers[at])) {
      return false;
    }
  }
  const std::string_view last = TakeWord(&text);
  if (!last.starts_with(kWith) || !text.empty()) return false;
  if (!ParseFeatures(last.substr(kWith.size()), &parsed.features)) return false;
  *problem = parsed;
  return true;
}

}  // namespace heed::core::tune
