// Every CUDA decode row that this GPU runs, on generated problems, against the oracle; replayed
// graphs; block tables and lengths that make no sense.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "conformance/tally.h"
// In this order: the constants of owned_tensor.h have the names of enumerators.
// clang-format off
#include "gpu/cuda_rows.h"
#include "gpu/options.h"
#include "decode/decode_instance.h"
#include "gpu/decode_call.h"
#include "gpu/decode_rows.h"
// clang-format on

namespace heed::test {
namespace {

constexpr heed_device_t kGpu = {HEED_DEVICE_CUDA, 0};

// One token of one sequence over a plain cache, which clusters take.
void MakeOneToken(DecodeCase* c) {
  c->batch = c->new_tokens = 1;
  c->lengths.resize(1);
  if (!c->leftpad.empty()) c->leftpad.resize(1);
  c->group = std::min<std::int64_t>(c->group, 8);
  const bool is_narrow = c->index / 12 % 2 == 0;
  c->head_dim = is_narrow || c->head_dim <= 64 ? 64 : 128;
  c->head_dim_v = is_narrow || c->head_dim_v <= 64 ? 64 : 128;
  c->element = c->index % 12 == 1 ? Element::kF16 : Element::kBF16;
  c->rotary_pairs = std::min(c->rotary_pairs, c->head_dim / 2);
  c->format = HEED_KV_PLAIN;
  c->k_groups = c->v_groups = 1;
  c->slots = std::max<std::int64_t>(c->slots, c->lengths[0] + 1);
  c->page_slots = 0;
  c->num_splits = 0;
  c->fixed_split = false;
  c->alignment = HEED_ALIGN_BOTTOM_RIGHT;
  c->window_left = c->window_right = -1;
  c->softcap = 0.0;
  c->has_alibi = false;
}

// What rows of CUDA take of a case: 16-bit queries, no bias, mask or dropout, no interleaved caches
// and none of llama.cpp's formats, and quantised rows in units of 32 bytes.
DecodeCase CudaCase(std::uint64_t index) {
  DecodeCase c = GenerateDecodeCase(index);
  if (c.element == Element::kF32) c.element = index % 2 == 0 ? Element::kF16 : Element::kBF16;
  if (c.format >= HEED_KV_Q8_0)
    c.format = c.format == HEED_KV_Q8_0 ? HEED_KV_FP8_E4M3 : HEED_KV_INT4;
  c.layout = HEED_KV_LAYOUT_ROWS;
  if (c.IsQuantised()) {
    const std::int64_t unit = c.format == HEED_KV_INT4 ? 64 : 32;
    for (const auto& [dim, groups] :
         {std::pair{&c.head_dim, &c.k_groups}, std::pair{&c.head_dim_v, &c.v_groups}}) {
      *dim = (*dim + unit - 1) / unit * unit;
      while (*dim % (*groups * unit) != 0) *groups /= 2;
    }
  }
  c.has_bias = c.has_mask = false;
  c.dropout = 0.0;
  if (index % 6 == 1) MakeOneToken(&c);
  return c;
}

// Of Hopper: one token of one sequence, groups of 8, head dims 64 and 128.
bool IsForFewTasks(const KernelRow& row) { return row.id.find(".sm90.") != std::string_view::npos; }

void RunCase(const DecodeCase& decode_case, const std::vector<KernelRow>& rows,
             std::size_t max_rows, Tally& tally) {
  const std::string id = Describe(decode_case);
  std::vector<KernelRow> takers =
      Takers(rows, decode_case.element, std::max(decode_case.head_dim, decode_case.head_dim_v));
  if (takers.empty()) return;
  DecodeInstance instance(decode_case);
  // Others take every plain cache.
  std::erase_if(takers, [&](const KernelRow& row) {
    return (decode_case.IsQuantised() || IsForFewTasks(row)) && !Plans(row, instance);
  });
  if (takers.empty()) {
    if (decode_case.IsQuantised()) tally.AddFailure(id + ": no row takes it");
    return;
  }
  SortByNeed(&takers, tally, decode_case.index);
  if (instance.Run({.backend = HEED_BACKEND_REFERENCE}) != HEED_OK) {
    return tally.AddFailure(id + ": the oracle: " + heed_last_error());
  }
  const DecodeResults wanted = CollectResults(instance);
  const DecodeInstance::Bounds bounds = instance.ComputeBounds(DecodeRounding::kTensorCores);
  for (std::size_t at = 0; at < std::min(max_rows, takers.size()); ++at) {
    const std::string wrong = RunOn(takers[at], instance, wanted, bounds);
    tally.AddCheck(takers[at].id, id, {});
    if (!wrong.empty()) tally.AddFailure(std::string(takers[at].id) + ": " + id + ": " + wrong);
  }
}

TEST(GpuDecode, GeneratedCases) {
  const GpuOptions options = GpuOptions::Read();
  const std::vector<KernelRow> rows = RunnableRows(options.kernel_part);
  if (rows.empty() && !options.kernel_part.empty()) GTEST_SKIP() << "no row fits HEED_GPU_KERNEL";
  ASSERT_FALSE(rows.empty());
  Tally tally;
  const char* one = std::getenv("HEED_DECODE_CASE");
  if (one != nullptr) {
    RunCase(CudaCase(std::strtoull(one, nullptr, 10)), rows, rows.size(), tally);
    return tally.Report();
  }
  const std::uint64_t first = (options.seed - 1) * 1000000;
  RunIndicesOnAllCores(options.num_cases, tally, [&](std::uint64_t index) {
    RunCase(CudaCase(first + index), rows, 2, tally);
  });
  tally.Report();
  ReportChecks(rows, tally, options.num_cases);
}

// Clusters that share a task: around block and row boundaries, with padding, cache rows in any
// order, sinks, appended rows, empty sequences, and so long that several clusters merge; of batches
// clusters of every size, and single CTAs.
TEST(GpuDecode, ClustersShareTasks) {
  std::vector<KernelRow> rows = RunnableRows(".sm90.");
  if (rows.empty()) GTEST_SKIP() << "NOT TESTED: no row with clusters runs here";
  constexpr std::int32_t kLengths[] = {0, 1, 15, 127, 128, 129, 1023, 1025, 3073, 4999};
  struct Tasks {
    std::int64_t num_kv_heads, group, batch = 1;
  };
  std::int64_t num_checks = 0;
  for (const Tasks& tasks :
       {Tasks{2, 7}, Tasks{8, 4}, Tasks{1, 8}, Tasks{32, 1}, Tasks{5, 3}, Tasks{16, 2},
        Tasks{4, 2, 3}, Tasks{3, 7, 9}, Tasks{2, 7, 16}, Tasks{8, 4, 16}, Tasks{2, 5, 75}}) {
    for (const std::int32_t length : kLengths) {
      if (tasks.batch > 1 && length > 1025) continue;
      DecodeCase c;
      c.index = static_cast<std::uint64_t>(num_checks);
      c.element = num_checks % 3 == 0 ? Element::kF16 : Element::kBF16;
      const bool is_many = tasks.batch * tasks.num_kv_heads > 66;  // these have short rows alone
      c.head_dim = num_checks % 2 == 0 || is_many ? 64 : 128;
      c.head_dim_v = num_checks % 5 == 0 && !is_many ? 192 - c.head_dim : c.head_dim;
      c.batch = tasks.batch;
      c.num_kv_heads = tasks.num_kv_heads;
      c.group = tasks.group;
      c.slots = length + 1 + num_checks % 3;
      // With both head dims, a batch index and padding among those that append.
      constexpr std::int64_t kAppending = 0b10010110;
      c.appends = (kAppending >> num_checks % 8 & 1) != 0;
      c.causal = HEED_CAUSAL_ON;
      c.has_sinks = num_checks % 3 == 1;
      c.has_batch_index = num_checks % 4 == 2;
      for (std::int32_t b = 0; b < tasks.batch; ++b) {
        c.lengths.push_back(length - length * b / static_cast<std::int32_t>(tasks.batch));
        if (num_checks % 4 == 3) c.leftpad.push_back(c.lengths.back() / 3);
      }
      SCOPED_TRACE(Describe(c));
      DecodeInstance instance(c);
      const DecodeResults wanted = OracleResults(instance);
      const DecodeInstance::Bounds bounds = instance.ComputeBounds(DecodeRounding::kTensorCores);
      bool is_run = false;
      for (const KernelRow& row : Takers(rows, c.element, std::max(c.head_dim, c.head_dim_v))) {
        if (!Plans(row, instance)) continue;
        is_run = true;
        EXPECT_EQ(RunOn(row, instance, wanted, bounds), "") << row.id;
      }
      EXPECT_TRUE(is_run) << heed_last_error();
      ++num_checks;
    }
  }
}

void CaptureDecode(DeviceDecodeCall* call, CudaStream stream, CudaGraphExec* graph) {
  call->exec().stream = stream;
  ASSERT_EQ(heed_prepare(HEED_OP_DECODE, call->args()), HEED_OK) << heed_last_error();
  ASSERT_EQ(call->MakeWorkspace(), HEED_OK) << heed_last_error();
  Cuda::Get().BeginCapture(stream);
  EXPECT_EQ(heed_decode(call->args()), HEED_OK) << heed_last_error();
  *graph = Cuda::Get().EndCapture(stream);
  ASSERT_NE(*graph, nullptr);
}

// One graph, without an append, while the sequence grows past what one cluster keeps to itself.
TEST(GpuDecode, ReplayedClustersMergeGrowingSequences) {
  DecodeCase c;
  c.element = Element::kBF16;
  c.num_kv_heads = 2;
  c.group = 4;
  c.slots = 9000;
  c.lengths = {9000};
  c.appends = false;
  DecodeInstance instance(c);
  DeviceDecodeCall call(instance.args);
  const CudaStream stream = Cuda::Get().NewStream();
  CudaGraphExec graph = nullptr;
  ASSERT_NO_FATAL_FAILURE(CaptureDecode(&call, stream, &graph));
  const auto lengths = reinterpret_cast<std::uint64_t>(call.args()->cache_lengths->data);
  auto* host_lengths = static_cast<std::int32_t*>(instance.args.cache_lengths->data);
  for (const std::int32_t length : {9000, 100, 9000, 3100, 0, 6500}) {
    SCOPED_TRACE(length);
    Cuda::Get().ToDevice(lengths, &length, sizeof(length));
    Cuda::Get().Replay(graph, stream);
    Cuda::Get().Wait(stream);
    ASSERT_EQ(call.Finish(), "");
    const DecodeResults got = CollectResults(instance);
    *host_lengths = length;
    EXPECT_EQ(
        Compare(got, OracleResults(instance), instance.ComputeBounds(DecodeRounding::kTensorCores)),
        "");
  }
  Cuda::Get().Destroy(graph);
  Cuda::Get().Destroy(stream);
}

// Two sequences that grow by a token a replay, from an empty and a longer cache.
TEST(GpuDecode, ReplayedGraphServesGrowingSequences) {
  DecodeCase c;
  c.element = Element::kBF16;
  c.batch = 2;
  c.num_kv_heads = 2;
  c.group = 4;
  c.slots = 2000;
  c.lengths = {150, 1650};  // what the last replay finds
  c.causal = HEED_CAUSAL_ON;
  DecodeInstance instance(c);
  DeviceDecodeCall call(instance.args);
  const CudaStream stream = Cuda::Get().NewStream();
  CudaGraphExec graph = nullptr;
  ASSERT_NO_FATAL_FAILURE(CaptureDecode(&call, stream, &graph));
  const auto lengths = reinterpret_cast<std::uint64_t>(call.args()->cache_lengths->data);
  auto* host_lengths = static_cast<std::int32_t*>(instance.args.cache_lengths->data);
  for (std::int32_t step = 0; step < 150; ++step) {
    const std::int32_t grown[2] = {step, 1500 + step};
    Cuda::Get().ToDevice(lengths, grown, sizeof(grown));
    Cuda::Get().Replay(graph, stream);
    Cuda::Get().Wait(stream);
    if (step % 49 != 0) continue;
    ASSERT_EQ(call.Finish(), "");
    const DecodeResults got = CollectResults(instance);
    // The cache that the replays left is the oracle's own input: the new rows are there already.
    std::copy(std::begin(grown), std::end(grown), host_lengths);
    instance.exec.backend = HEED_BACKEND_REFERENCE;
    instance.exec.stream = nullptr;
    ASSERT_EQ(heed_decode(&instance.args), HEED_OK) << heed_last_error();
    EXPECT_EQ(Compare(got, CollectResults(instance),
                      instance.ComputeBounds(DecodeRounding::kTensorCores)),
              "")
        << "step " << step;
  }
  Cuda::Get().Destroy(graph);
  Cuda::Get().Destroy(stream);
}

heed_device_errors_t TakeErrors() {
  heed_device_errors_t errors = HEED_DEVICE_ERRORS_INIT;
  EXPECT_EQ(heed_check_device_errors(kGpu, &errors), HEED_OK);
  return errors;
}

// Entries of a block table, or lengths, that the host never reads.
void ExpectCounted(DecodeCase c, const heed_tensor_t* heed_decode_args_t::*lengths,
                   std::int32_t value, std::int64_t heed_device_errors_t::*counter) {
  SCOPED_TRACE(value);
  c.element = Element::kF16;
  DecodeInstance instance(c);
  TakeErrors();
  DeviceDecodeCall call(instance.args);
  const heed_tensor_t* target =
      lengths != nullptr ? call.args()->*lengths : call.args()->paging->block_table;
  Cuda::Get().ToDevice(reinterpret_cast<std::uint64_t>(target->data), &value, sizeof(value));
  ASSERT_EQ(heed_decode(call.args()), HEED_OK) << heed_last_error();
  EXPECT_EQ(call.Finish(), "");
  EXPECT_GT(TakeErrors().*counter, 0);
}

TEST(GpuDecode, EntriesOutOfRangeAreCountedAndHarmless) {
  DecodeCase paged;
  paged.lengths = {100};
  paged.page_slots = 16;
  for (const std::int32_t value : {-1, 1 << 20, std::numeric_limits<std::int32_t>::min(),
                                   std::numeric_limits<std::int32_t>::max()}) {
    ExpectCounted(paged, nullptr, value, &heed_device_errors_t::num_bad_block_entries);
    if (value == 1 << 20 || value < 0) {
      ExpectCounted(paged, &heed_decode_args_t::cache_lengths, value,
                    &heed_device_errors_t::num_bad_lengths);
    }
  }
  DecodeCase indexed;
  indexed.lengths = {100};
  indexed.slots = 128;
  indexed.has_batch_index = true;
  indexed.leftpad = {3};
  for (const std::int32_t value : {-5, 1 << 30}) {
    for (const auto member :
         {&heed_decode_args_t::cache_lengths, &heed_decode_args_t::cache_batch_index,
          &heed_decode_args_t::cache_leftpad}) {
      ExpectCounted(indexed, member, value, &heed_device_errors_t::num_bad_lengths);
    }
  }
}

// With fixed_split a sequence alone and in a batch has the same bits.
TEST(GpuDecode, FixedSplitDoesNotDependOnTheBatch) {
  DecodeCase c;
  c.element = Element::kBF16;
  c.head_dim = c.head_dim_v = 128;
  c.batch = 3;
  c.num_kv_heads = 2;
  c.group = 4;
  c.slots = 4096;
  c.lengths = {4000, 900, 3000};
  c.appends = false;
  c.fixed_split = true;
  DecodeInstance instance(c);
  const auto run = [&](std::int64_t batch) {
    instance.Restore();
    DeviceDecodeCall call(instance.args);
    std::vector<heed_tensor_t> views;
    for (const heed_tensor_t* tensor :
         {call.args()->q, call.args()->o, call.args()->lse, call.args()->cache_lengths}) {
      views.push_back(*tensor);
    }
    std::vector<std::vector<std::int64_t>> shapes;
    for (heed_tensor_t& view : views) {
      shapes.emplace_back(view.shape, view.shape + view.ndim);
      shapes.back()[0] = batch;
    }
    for (std::size_t n = 0; n < views.size(); ++n) views[n].shape = shapes[n].data();
    heed_decode_args_t args = *call.args();
    args.q = &views[0];
    args.o = &views[1];
    args.lse = &views[2];
    args.cache_lengths = &views[3];
    EXPECT_EQ(heed_decode(&args), HEED_OK) << heed_last_error();
    EXPECT_EQ(call.Finish(), "");
    const DecodeResults results = CollectResults(instance);
    return std::vector<double>(results.o.begin(), results.o.begin() + 8 * 128);
  };
  EXPECT_EQ(run(1), run(3));
}

// heed_quantize_kv writes the same bytes on both backends, of numbers of every magnitude.
TEST(GpuDecode, QuantisesAsTheCpuDoes) {
  for (const heed_kv_format_t format : {HEED_KV_INT8, HEED_KV_FP8_E4M3, HEED_KV_INT4}) {
    for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
      constexpr std::int64_t kDim = 72, kGroups = 3, kRows = 5 * 7 * 3;
      OwnedTensor source(ElementToAbi(element), {5, 7, 3, kDim});
      Random random(7, "rows to quantise");
      for (std::int64_t i = 0; i < kRows * kDim; ++i) {
        const double value =
            random.Chance(0.1)
                ? 0.0
                : std::ldexp(random.Normal(), static_cast<int>(random.Below(12)) - 8);
        StoreElement(
            element,
            source.data<std::uint8_t>() + static_cast<std::size_t>(i) * ElementBytes(element),
            value);
      }
      OwnedTensor payload(kU8, {5, 7, 3, format == HEED_KV_INT4 ? kDim / 2 : kDim}, 0xFF);
      OwnedTensor scales(kF32, {5, 7, 3, kGroups}, 0xFF);
      heed_quantize_kv_args_t args = HEED_QUANTIZE_KV_ARGS_INIT;
      args.format = format;
      args.source = &source.abi;
      args.payload = &payload.abi;
      args.scales = &scales.abi;
      ASSERT_EQ(heed_quantize_kv(&args), HEED_OK) << heed_last_error();
      const std::vector<std::uint64_t> wanted[] = {payload.bytes(), scales.bytes()};
      std::memset(payload.data<std::uint8_t>(), 0,
                  static_cast<std::size_t>(payload.abi.shape[3] * kRows));
      std::memset(scales.data<std::uint8_t>(), 0, static_cast<std::size_t>(kGroups * kRows) * 4);
      const DeviceCopy on_device[] = {DeviceCopy(source.abi), DeviceCopy(payload.abi),
                                      DeviceCopy(scales.abi)};
      args.source = on_device[0].tensor();
      args.payload = on_device[1].tensor();
      args.scales = on_device[2].tensor();
      ASSERT_EQ(heed_quantize_kv(&args), HEED_OK) << heed_last_error();
      for (const DeviceCopy& copy : on_device) {
        copy.CopyBack();
        EXPECT_EQ(copy.DescribeDamage(), "");
      }
      EXPECT_EQ(payload.bytes(), wanted[0]) << format << " " << ElementName(element);
      EXPECT_EQ(scales.bytes(), wanted[1]) << format << " " << ElementName(element);
    }
  }
}

}  // namespace
}  // namespace heed::test
