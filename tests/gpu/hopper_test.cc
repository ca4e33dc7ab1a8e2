// What the Hopper forward rows promise beyond right results: the same bits whatever the order of
// tiles, whatever stands in neighbouring sequences, and at lengths of 0 and 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gpu/cuda.h"
#include "gpu/cuda_rows.h"
#include "gpu/device_call.h"
#include "support/attention_call.h"

namespace heed::test {
namespace {

constexpr const char* kRows[] = {
    "cuda.sm90.forward.bf16.d64.q128k128", "cuda.sm90.forward.bf16.d96.q128k128",
    "cuda.sm90.forward.bf16.d128.q128k128", "cuda.sm90.forward.bf16.d192.q128k80",
    "cuda.sm90.forward.bf16.d256.q128k80"};

bool HasHopperRows() { return !RunnableCudaRows("Forward", "cuda.sm90.forward").empty(); }

std::int64_t HeadDimOf(const std::string& id) { return std::stoll(id.substr(id.find(".d") + 2)); }

std::vector<double> ValuesOf(const StridedTensor& tensor) {
  std::vector<double> values;
  ForEachIndex(tensor.shape(), [&](const Indices& at) { values.push_back(tensor.At(at)); });
  return values;
}

void RunOn(AttentionCall& call, const char* row, std::int64_t max_len) {
  call.exec.kernel = row;
  call.exec.fixed_split = HEED_ON;  // the row does not split
  call.o.PoisonAll(Poison::kNaN);
  call.lse.PoisonAll(Poison::kNaN);
  DeviceForwardCall device(call.args, max_len, max_len);
  ASSERT_EQ(heed_forward(device.args()), HEED_OK) << row << ": " << heed_last_error();
  ASSERT_EQ(device.Finish(), "") << row;
}

// Sequences of a packed call, and the first row of each.
const std::vector<std::int64_t> kLengths = {0, 1, 300, 0, 129, 1, 64, 200, 0};

// What may join the exponent of the speculative softmax.
enum class Terms { kNone, kAlibi, kBias, kSoftcap };
constexpr Terms kAllTerms[] = {Terms::kNone, Terms::kAlibi, Terms::kBias, Terms::kSoftcap};
constexpr std::int64_t kWidestHeadWithTerms = 128;

struct PackedCall : AttentionCall {
  static std::vector<std::int64_t> Offsets() {
    std::vector<std::int64_t> offsets = {0};
    for (const std::int64_t length : kLengths) offsets.push_back(offsets.back() + length);
    return offsets;
  }

  PackedCall(std::int64_t head_dim, heed_causal_t causal)
      : AttentionCall(Element::kBF16, {Offsets().back(), 4, head_dim},
                      {Offsets().back(), 2, head_dim}, {Offsets().back(), 2, head_dim}),
        offsets(Offsets()) {
    FillNormal(static_cast<std::uint64_t>(head_dim));
    score.causal = causal;
    varlen.cu_seqlens_q = varlen.cu_seqlens_kv = offsets.abi();
    varlen.max_seqlen_q = varlen.max_seqlen_kv = 300;
  }

  void Add(Terms terms) {
    if (terms == Terms::kAlibi) score.alibi_slopes = slopes.abi();
    if (terms == Terms::kBias) score.bias = bias.abi();
    if (terms == Terms::kSoftcap) score.softcap = 50.0;
    slopes.Fill([](const Indices& at) { return 0.5 / static_cast<double>(1 + at[0]); });
    bias.Fill([](const Indices& at) {
      return static_cast<double>((7 * at[1] + 3 * at[2] + 5 * at[3]) % 13 - 6) / 2.0;
    });
  }

  IntTensor offsets;
  StridedTensor slopes{Element::kF32, {4}};
  // Rows begin at multiples of 16 bytes.
  StridedTensor bias{Element::kBF16, {1, 4, 300, 300}, {4 * 300 * 304, 300 * 304, 304, 1}};
};

// Rows [begin, begin + call rows) of `packed` as q, k and v of a dense call of one sequence.
void FillFrom(const PackedCall& packed, std::int64_t begin, AttentionCall& dense) {
  const StridedTensor* const from[] = {&packed.q, &packed.k, &packed.v};
  StridedTensor* const to[] = {&dense.q, &dense.k, &dense.v};
  for (int i = 0; i < 3; ++i) {
    to[i]->Fill([&](const Indices& at) { return from[i]->At({begin + at[1], at[2], at[3]}); });
  }
}

void CheckPackedBits(const char* row, heed_causal_t causal) {
  SCOPED_TRACE(std::string(row) + (causal == HEED_CAUSAL_ON ? " causal" : ""));
  const std::int64_t head_dim = HeadDimOf(row);
  PackedCall packed(head_dim, causal);
  RunOn(packed, row, 300);
  std::int64_t begin = 0;
  for (const std::int64_t length : kLengths) {
    if (length == 0) continue;
    AttentionCall dense(Element::kBF16, {1, length, 4, head_dim}, {1, length, 2, head_dim},
                        {1, length, 2, head_dim});
    dense.args.varlen = nullptr;
    dense.score.causal = causal;
    FillFrom(packed, begin, dense);
    RunOn(dense, row, length);
    ForEachIndex(dense.o.shape(), [&](const Indices& at) {
      ASSERT_EQ(packed.o.At({begin + at[1], at[2], at[3]}), dense.o.At(at))
          << length << " rows, " << ToString(at);
    });
    ForEachIndex(dense.lse.shape(), [&](const Indices& at) {
      ASSERT_EQ(packed.lse.At({at[1], begin + at[2]}), dense.lse.At(at))
          << length << " rows, " << ToString(at);
    });
    begin += length;
  }
}

// Each in a thread of its own: most of the time goes to compiling.
TEST(GpuHopper, PackedSequencesHaveTheBitsOfSeparateCalls) {
  if (!HasHopperRows()) GTEST_SKIP() << "no Hopper GPU";
  std::vector<std::thread> threads;
  for (const char* row : kRows) {
    for (const heed_causal_t causal : {HEED_CAUSAL_OFF, HEED_CAUSAL_ON}) {
      threads.emplace_back([row, causal] {
        Cuda::Get().Use(0);
        CheckPackedBits(row, causal);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

void CheckBesideNan(const char* row, heed_causal_t causal, Terms terms) {
  SCOPED_TRACE(std::string(row) + (causal == HEED_CAUSAL_ON ? " causal" : "") + " terms " +
               std::to_string(static_cast<int>(terms)));
  constexpr std::int64_t kFirst = 301, kEnd = 430;  // the sequence of 129 rows
  PackedCall packed(HeadDimOf(row), causal);
  packed.Add(terms);
  RunOn(packed, row, 300);
  const std::vector<double> expected = ValuesOf(packed.o);
  for (StridedTensor* tensor : {&packed.q, &packed.k, &packed.v}) {
    ForEachIndex(tensor->shape(), [&](const Indices& at) {
      if (at[0] < kFirst || at[0] >= kEnd) tensor->SetPoison(at, Poison::kNaN);
    });
  }
  ForEachIndex(packed.bias.shape(), [&](const Indices& at) {
    if (std::max(at[2], at[3]) >= kEnd - kFirst) packed.bias.SetPoison(at, Poison::kNaN);
  });
  RunOn(packed, row, 300);
  std::size_t i = 0;
  ForEachIndex(packed.o.shape(), [&](const Indices& at) {
    const double known = expected[i++];
    if (at[0] >= kFirst && at[0] < kEnd) {
      ASSERT_EQ(packed.o.At(at), known) << ToString(at);
    }
  });
}

// The other sequences of the pack hold NaN, and so does the bias of theirs: nothing of them may
// show. Beside the softcap that also says that rows which repeat a block leave others alone.
TEST(GpuHopper, SequencesBesideNanKeepTheirBits) {
  if (!HasHopperRows()) GTEST_SKIP() << "no Hopper GPU";
  std::vector<std::thread> threads;
  for (const char* row : kRows) {
    for (const heed_causal_t causal : {HEED_CAUSAL_OFF, HEED_CAUSAL_ON}) {
      for (const Terms terms : kAllTerms) {
        if (terms != Terms::kNone && HeadDimOf(row) > kWidestHeadWithTerms) continue;
        threads.emplace_back([=] {
          Cuda::Get().Use(0);
          CheckBesideNan(row, causal, terms);
        });
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
}

// Runs a prepared call again and again: every run must leave the bits of the first.
void ExpectSameBits(AttentionCall& call, std::int64_t length, int num_runs, const char* row) {
  call.exec.kernel = row;
  call.args.varlen = nullptr;
  DeviceForwardCall device(call.args, length, length);
  const auto o = reinterpret_cast<std::uint64_t>(device.args()->o->data);
  std::size_t num_bytes = sizeof(std::uint16_t);
  for (const std::int64_t size : call.o.shape()) num_bytes *= static_cast<std::size_t>(size);
  std::vector<char> expected(num_bytes), actual(num_bytes);
  for (int run = 0; run < num_runs; ++run) {
    Cuda::Get().Fill(o, 0xFF, num_bytes);
    ASSERT_EQ(heed_forward(device.args()), HEED_OK) << row << ": " << heed_last_error();
    Cuda::Get().Synchronize();
    Cuda::Get().ToHost(actual.data(), o, num_bytes);
    if (run == 0) expected = actual;
    ASSERT_EQ(std::memcmp(actual.data(), expected.data(), num_bytes), 0) << row << " run " << run;
  }
}

constexpr int kRuns = 250;

// More tiles than multiprocessors, dealt out by a counter in another order each time.
TEST(GpuHopper, BitsDoNotDependOnTheOrderOfTiles) {
  if (!HasHopperRows()) GTEST_SKIP() << "no Hopper GPU";
  for (const char* row : kRows) {
    const std::int64_t head_dim = HeadDimOf(row);
    AttentionCall call(Element::kBF16, {3, 900, 8, head_dim}, {3, 900, 4, head_dim},
                       {3, 900, 4, head_dim});
    call.FillNormal(7);
    call.score.causal = HEED_CAUSAL_ON;
    ExpectSameBits(call, 900, kRuns, row);
  }
}

// A slab of bias is overwritten by the next block's as soon as its readers have let go of it. Long
// enough to see one that lets go too early: it happened once in 300000 blocks.
TEST(GpuHopper, BitsDoNotDependOnWhenABiasArrives) {
  if (!HasHopperRows()) GTEST_SKIP() << "no Hopper GPU";
  constexpr std::int64_t kLength = 2048, kHeads = 16, kHeadDim = 128;
  AttentionCall call(Element::kBF16, {1, kLength, kHeads, kHeadDim}, {1, kLength, 2, kHeadDim},
                     {1, kLength, 2, kHeadDim});
  call.FillNormal(8);
  StridedTensor bias{Element::kBF16, {1, 1, kLength, kLength}};
  bias.Fill([](const Indices& at) {
    return static_cast<double>((7 * at[2] + 5 * at[3]) % 13 - 6) / 2.0;
  });
  call.score.bias = bias.abi();
  ExpectSameBits(call, kLength, kRuns, "cuda.sm90.forward.bf16.d128.q128k128");
}

}  // namespace
}  // namespace heed::test
