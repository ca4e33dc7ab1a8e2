// Two sequences of different lengths, packed one after the other, through the C++ interface;
// checked against the library's double-precision oracle.
//
// Build against an installed heed: c++ -std=c++20 forward.cpp $(pkg-config --cflags --libs heed)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <heed/heed.hpp>
#include <random>
#include <vector>

namespace {

constexpr std::int64_t kNumQHeads = 8;
constexpr std::int64_t kNumKvHeads = 2;  // each serves 4 query heads
constexpr std::int64_t kHeadDim = 80;
constexpr std::int64_t kTotalTokens = 300;
// Sequence b is rows [kStarts[b], kStarts[b + 1]): 90 and 210 tokens.
const std::vector<std::int32_t> kStarts = {0, 90, 300};

std::vector<float> normal_values(std::int64_t num_elems, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(num_elems);
  std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  return values;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= largest)) largest = difference;  // keeps a NaN
  }
  return largest;
}

}  // namespace

int main() try {
  const std::vector<float> q = normal_values(kTotalTokens * kNumQHeads * kHeadDim, 1);
  const std::vector<float> k = normal_values(kTotalTokens * kNumKvHeads * kHeadDim, 2);
  const std::vector<float> v = normal_values(kTotalTokens * kNumKvHeads * kHeadDim, 3);
  std::vector<float> o(q.size());
  std::vector<float> expected(q.size());

  const heed::Tensor cu_seqlens(kStarts.data(), {3});
  heed::Forward call = {
      .q = {q.data(), {kTotalTokens, kNumQHeads, kHeadDim}},
      .k = {k.data(), {kTotalTokens, kNumKvHeads, kHeadDim}},
      .v = {v.data(), {kTotalTokens, kNumKvHeads, kHeadDim}},
      .o = {o.data(), {kTotalTokens, kNumQHeads, kHeadDim}},
      .score = {.causal = true, .window_left = 63},  // each token sees itself and 63 before it
      .varlen = {.cu_seqlens_q = cu_seqlens, .cu_seqlens_kv = cu_seqlens},
  };

  std::printf("kernel %s\n", heed::plan(call).kernel_id);
  heed::forward(call);

  call.o = {expected.data(), {kTotalTokens, kNumQHeads, kHeadDim}};
  call.exec = heed::Exec(HEED_BACKEND_REFERENCE);
  heed::forward(call);

  // fp32 rounding over 80 dims and 64 keys, values of a few units: far below this bound.
  const double bound = 1e-5;
  const double difference = largest_difference(o, expected);
  std::printf("largest difference from the oracle %.2e, bound %.0e\n", difference, bound);
  return difference <= bound ? 0 : 1;
} catch (const heed::Error& error) {
  std::fprintf(stderr, "heed: %s\n", error.what());
  return 1;
}
