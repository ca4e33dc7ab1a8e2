// Decode rows for head dims above 256 against the oracle: latent vectors, whose values are columns
// of the keys and are read once, and values of their own; every row that runs here, forced, and
// what the planner chooses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

// In this order: the constants of owned_tensor.h have the names of enumerators.
// clang-format off
#include "gpu/cuda_rows.h"
#include "decode/decode_instance.h"
#include "gpu/decode_call.h"
// clang-format on

namespace heed::test {
namespace {

// Values become the first columns of the keys, of which the oracle has a copy.
void CopyKeysToValues(const heed_decode_args_t& args) {
  const heed_tensor_t& k = *args.k_cache;
  const heed_tensor_t& v = *args.v_cache;
  const std::int64_t elem_bytes = k.dtype.bits / 8;
  const auto row = [&](const heed_tensor_t& cache, std::int64_t page, std::int64_t slot,
                       std::int64_t head) {
    return static_cast<std::uint8_t*>(cache.data) +
           (page * cache.strides[0] + slot * cache.strides[1] + head * cache.strides[2]) *
               elem_bytes;
  };
  for (std::int64_t page = 0; page < k.shape[0]; ++page) {
    for (std::int64_t slot = 0; slot < k.shape[1]; ++slot) {
      for (std::int64_t head = 0; head < k.shape[2]; ++head) {
        std::memcpy(row(v, page, slot, head), row(k, page, slot, head),
                    static_cast<std::size_t>(v.shape[3] * elem_bytes));
      }
    }
  }
}

// The same call with the keys' own memory as values.
struct LatentCall {
  explicit LatentCall(const heed_decode_args_t& source) : args(source) {
    std::copy_n(source.k_cache->shape, 4, shape);
    shape[3] = source.v_cache->shape[3];
    values = *source.k_cache;
    values.shape = shape;
    args.v_cache = &values;
  }
  std::int64_t shape[4];
  heed_tensor_t values;
  heed_decode_args_t args;
};

double WorstError(const std::vector<double>& got, const std::vector<double>& wanted) {
  double worst = 0.0;
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    if (got[n] == wanted[n]) continue;
    const double error = std::abs(got[n] - wanted[n]);
    worst = std::max(worst, std::isfinite(error) ? error : std::numeric_limits<double>::infinity());
  }
  return worst;
}

enum class Values { kOwn, kColumnsOfKeys };

struct Expected {
  DecodeResults results;
  DecodeInstance::Bounds bounds;
};

// kernel: empty = the planner's choice. False when the row leaves the case to others.
bool CheckOn(const std::string& kernel, DecodeInstance& instance, const Expected& expected,
             Values values) {
  SCOPED_TRACE(kernel);
  instance.Restore();
  if (values == Values::kColumnsOfKeys) CopyKeysToValues(instance.args);
  DeviceDecodeCall call(instance.args);
  call.exec().kernel = kernel.empty() ? nullptr : kernel.c_str();
  const LatentCall latent(*call.args());
  const heed_decode_args_t& args = values == Values::kColumnsOfKeys ? latent.args : *call.args();
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  const heed_status_t planned = heed_plan(HEED_OP_DECODE, &args, &plan);
  if (planned == HEED_UNSUPPORTED && !kernel.empty()) return false;
  EXPECT_EQ(planned, HEED_OK) << heed_last_error();
  if (values == Values::kColumnsOfKeys && kernel.empty()) {
    EXPECT_NE(std::string(plan.kernel_id).find(".latent"), std::string::npos) << plan.kernel_id;
  }
  DeviceBlock workspace(std::max<std::size_t>(plan.workspace_bytes, 1));
  call.exec().workspace = workspace.data();
  call.exec().workspace_bytes = plan.workspace_bytes;
  EXPECT_EQ(heed_decode(&args), HEED_OK) << heed_last_error();
  EXPECT_EQ(call.Finish(), "");
  EXPECT_EQ(workspace.DescribeDamage(), "");
  const DecodeResults got = CollectResults(instance);
  EXPECT_LE(WorstError(got.o, expected.results.o), expected.bounds.output);
  EXPECT_LE(WorstError(got.lse, expected.results.lse), expected.bounds.lse);
  EXPECT_EQ(got.cache, expected.results.cache);
  return true;
}

std::vector<std::string> WideRows(Element element) {
  std::vector<std::string> ids;
  for (const KernelRow& row : CudaRows()) {
    if (row.op == "Decode" && row.max_head_dim > 256 && row.Takes(element)) {
      ids.emplace_back(row.id);
    }
  }
  return ids;
}

// What kernels are compiled for: few kinds, since each takes seconds.
struct Kind {
  Element element;
  std::int64_t head_dim, head_dim_v;
  bool is_paged;
  bool has_terms;  // softcap and ALiBi
};
const Kind kKinds[] = {
    {Element::kBF16, 576, 512, false, false}, {Element::kF16, 576, 512, false, false},
    {Element::kBF16, 576, 512, true, false},  {Element::kBF16, 328, 264, false, false},
    {Element::kF16, 575, 301, true, true},  // element by element
};

// Every other feature in some case; lengths around the ends of blocks.
DecodeCase CaseAt(const Kind& kind, int index) {
  constexpr std::int64_t kGroups[] = {16, 5, 64, 128, 40, 1};
  constexpr std::int32_t kLengths[] = {0, 1, 31, 32, 65, 129, 300};
  DecodeCase c;
  c.index = static_cast<std::uint64_t>(index);
  c.element = kind.element;
  c.head_dim = kind.head_dim;
  c.head_dim_v = kind.head_dim_v;
  c.num_kv_heads = index % 7 == 6 ? 2 : 1;
  c.group = kGroups[index % 6];
  c.batch = 1 + index % 3;
  c.new_tokens = index % 4 == 3 ? 3 : 1;
  c.appends = false;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    c.lengths.push_back(kLengths[static_cast<std::size_t>(index + 3 * b) % 7]);
  }
  c.slots = 310;
  if (kind.is_paged) {
    c.page_slots = index % 3 == 0 ? 1 : 16;
  } else if (index % 3 == 2) {
    c.has_batch_index = true;
    for (const std::int32_t length : c.lengths) c.leftpad.push_back(length / 3);
  }
  c.causal = index % 2 == 0 ? HEED_CAUSAL_ON : HEED_CAUSAL_OFF;
  if (index % 5 == 3) c.window_left = 20;
  if (kind.has_terms) c.softcap = 5.0;
  c.has_alibi = kind.has_terms;
  c.has_sinks = index % 4 == 1;
  if (index % 6 == 2) c.num_splits = 3;
  c.fixed_split = index % 6 == 4;
  return c;
}

void CheckCase(const DecodeCase& c, Values values, int* num_checks) {
  SCOPED_TRACE(Describe(c));
  DecodeInstance instance(c);
  instance.Restore();
  if (values == Values::kColumnsOfKeys) CopyKeysToValues(instance.args);
  instance.exec.backend = HEED_BACKEND_REFERENCE;
  ASSERT_EQ(heed_decode(&instance.args), HEED_OK) << heed_last_error();
  Expected expected = {CollectResults(instance), {}};
  expected.bounds = instance.ComputeBounds(DecodeRounding::kTensorCores);
  instance.exec.backend = HEED_BACKEND_CUDA;
  EXPECT_TRUE(CheckOn("", instance, expected, values));
  for (const std::string& id : WideRows(c.element)) {
    *num_checks += CheckOn(id, instance, expected, values) ? 1 : 0;
  }
}

// Latent rows need the shared memory of an A100 or H100.
std::string WhyNotHere() {
  DecodeInstance instance(CaseAt(kKinds[0], 0));
  DeviceDecodeCall call(instance.args);
  const LatentCall latent(*call.args());
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  return heed_plan(HEED_OP_DECODE, &latent.args, &plan) == HEED_OK ? "" : heed_last_error();
}

class GpuWideDecode : public testing::TestWithParam<int> {};

TEST_P(GpuWideDecode, LatentVectors) {
  if (const std::string why = WhyNotHere(); !why.empty()) GTEST_SKIP() << why;
  const Kind& kind = kKinds[GetParam()];
  int num_checks = 0;
  for (int index = 0; index < 12; ++index) {
    CheckCase(CaseAt(kind, index), Values::kColumnsOfKeys, &num_checks);
  }
  std::printf("%d checks of rows\n", num_checks);
  EXPECT_GE(num_checks, 36) << "of three rows";
}

TEST_P(GpuWideDecode, ValuesOfTheirOwn) {
  if (const std::string why = WhyNotHere(); !why.empty()) GTEST_SKIP() << why;
  const Kind& kind = kKinds[GetParam()];
  int num_checks = 0;
  for (int index = 0; index < 6; ++index) {
    DecodeCase c = CaseAt(kind, index);
    c.appends = index % 2 == 0;
    CheckCase(c, Values::kOwn, &num_checks);
  }
  std::printf("%d checks of rows\n", num_checks);
  EXPECT_EQ(num_checks, 6) << "of the row that takes them";
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuWideDecode, testing::Range(0, 5));

// So long that many CTAs share a sequence and merge.
TEST(GpuWideDecodeSplits, ManyPiecesOfALongSequence) {
  if (const std::string why = WhyNotHere(); !why.empty()) GTEST_SKIP() << why;
  for (const std::int64_t group : {16, 128}) {
    DecodeCase c;
    c.index = 3;
    c.element = Element::kBF16;
    c.head_dim = 576;
    c.head_dim_v = 512;
    c.group = group;
    c.batch = 2;
    c.slots = 4100;
    c.lengths = {4096, 77};
    c.appends = false;
    int num_checks = 0;
    CheckCase(c, Values::kColumnsOfKeys, &num_checks);
    EXPECT_GE(num_checks, 3);
  }
}

}  // namespace
}  // namespace heed::test
