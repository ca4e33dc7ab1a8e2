// Decode over quantised caches on CUDA, against the oracle.
#include <gtest/gtest.h>

#include <algorithm>

// In this order: the constants of owned_tensor.h have the names of enumerators.
// clang-format off
#include "gpu/cuda_rows.h"
#include "decode/decode_instance.h"
#include "gpu/decode_call.h"
#include "gpu/decode_rows.h"
// clang-format on

namespace heed::test {
namespace {

// Few and many rows of a group, tokens appended across pages, on the row that the planner takes.
TEST(GpuDecode, QuantisedCachesWithPagesOfEverySize) {
  const std::vector<KernelRow> rows = RunnableRows("");
  for (const heed_kv_format_t format : {HEED_KV_INT8, HEED_KV_FP8_E4M3, HEED_KV_INT4}) {
    for (const std::int64_t page_slots : {1, 2, 3, 5, 16, 17, 64, 256}) {
      DecodeCase c;
      c.index = static_cast<std::uint64_t>(page_slots);
      c.element = Element::kBF16;
      c.format = format;
      c.head_dim = c.head_dim_v = 128;
      c.batch = c.num_kv_heads = 2;
      c.group = page_slots % 2 == 0 ? 4 : 12;
      c.new_tokens = page_slots % 2 == 0 ? 2 : 1;
      c.page_slots = page_slots;
      c.lengths = {static_cast<std::int32_t>(page_slots), 300};
      c.causal = HEED_CAUSAL_ON;
      SCOPED_TRACE(Describe(c));
      DecodeInstance instance(c);
      const DecodeResults wanted = OracleResults(instance);
      const DecodeInstance::Bounds bounds = instance.ComputeBounds(DecodeRounding::kTensorCores);
      DeviceDecodeCall planned(instance.args);
      heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
      ASSERT_EQ(heed_plan(HEED_OP_DECODE, planned.args(), &plan), HEED_OK) << heed_last_error();
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const KernelRow& candidate) {
        return candidate.id == plan.kernel_id;
      });
      ASSERT_NE(row, rows.end()) << plan.kernel_id;
      EXPECT_EQ(RunOn(*row, instance, wanted, bounds), "") << row->id;
    }
  }
}

// So many int4 keys that every warp has a KV head to itself: whole and cut sequences of all
// lengths, with what else there is beside them.
TEST(GpuDecode, WarpsTakeHeadsOfInt4) {
  const std::vector<KernelRow> rows = RunnableRows(".sm80.");
  for (const std::uint64_t index : {0, 1, 2, 3}) {
    DecodeCase c;
    c.index = index;
    c.element = index % 2 == 0 ? Element::kBF16 : Element::kF16;
    c.format = HEED_KV_INT4;
    c.head_dim = c.head_dim_v = 128;
    c.k_groups = index < 2 ? 2 : 1;
    c.v_groups = index < 3 ? 2 : 1;
    c.batch = 16;
    c.num_kv_heads = 8;
    c.group = 2;
    c.slots = 1030;
    c.appends = index == 1;
    c.causal = HEED_CAUSAL_ON;
    c.has_sinks = index == 2;
    c.has_batch_index = index == 2;
    c.page_slots = index == 3 ? 16 : 0;
    c.softcap = index == 1 ? 20.0 : 0.0;
    for (std::int32_t b = 0; b < 16; ++b) {
      c.lengths.push_back(index % 2 == 0 ? 1029 - 60 * b : b == 7 ? 1029 : 17 * b);
      if (index == 2) c.leftpad.push_back(c.lengths.back() / 5);
    }
    SCOPED_TRACE(Describe(c));
    DecodeInstance instance(c);
    const DecodeResults wanted = OracleResults(instance);
    const DecodeInstance::Bounds bounds = instance.ComputeBounds(DecodeRounding::kTensorCores);
    const std::vector<KernelRow> takers = Takers(rows, c.element, c.head_dim);
    const auto row = std::find_if(takers.begin(), takers.end(), [&](const KernelRow& taker) {
      return Plans(taker, instance) && taker.id.find("q16k128") != std::string_view::npos;
    });
    if (row == takers.end()) GTEST_SKIP() << "NOT TESTED: no row of blocks of 128 keys runs here";
    EXPECT_EQ(RunOn(*row, instance, wanted, bounds), "") << row->id;
  }
}

}  // namespace
}  // namespace heed::test
