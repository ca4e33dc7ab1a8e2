// Paged keys and values, through the forward call.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/attention_call.h"

namespace heed::test {
namespace {

// One sequence of `used` tokens in pages of `page_slots`, with a table of `columns` entries.
struct PagedCall {
  PagedCall(std::int64_t used_tokens, std::int64_t page_slots, std::int64_t columns)
      : call(Element::kF32, {1, 1, 2, 16}, {columns + 1, page_slots, 1, 16},
             {columns + 1, page_slots, 1, 16}),
        used({used_tokens}),
        table(Element::kI32, {1, columns}) {
    call.FillNormal(1);
    table.Fill([&](const Indices& at) { return static_cast<double>(columns - at[1]); });
    call.varlen.seqused_kv = used.abi();
    call.paging.block_table = table.abi();
    call.args.paging = &call.paging;
  }

  AttentionCall call;
  IntTensor used;
  StridedTensor table;
};

// Dao-AILab/flash-attention#2711: 65 tokens do not fit into 4 pages of 16.
TEST(Faults, B125_LengthBeyondTheTable) {
  PagedCall fits(64, 16, 4);
  fits.call.OnEveryKernel([] {});
  PagedCall too_long(65, 16, 4);
  too_long.call.ExpectRefused(HEED_INVALID_ARGUMENT, {"seqused_kv[0] = 65", "64"});
}

// vllm-project/vllm#7018: entries past the need are never read.
TEST(Faults, B127_EntriesPastTheNeedAreNotRead) {
  AttentionCall call(Element::kF32, {2, 1, 2, 16}, {5, 16, 1, 16}, {5, 16, 1, 16});
  call.FillNormal(2);
  IntTensor table({2, 4}, {1, 2, 3, 4, 0, -1, INT32_MAX, INT32_MIN});
  call.paging.block_table = table.abi();
  call.args.paging = &call.paging;
  for (const std::int64_t second_length : {0, 10, 16}) {
    IntTensor used({64, second_length});
    call.varlen.seqused_kv = used.abi();
    call.OnEveryKernel([] {});
  }
  IntTensor used({64, 17});
  call.varlen.seqused_kv = used.abi();
  call.ExpectRefused(HEED_INVALID_ARGUMENT, {"block_table", "-1"});
}

// flashinfer-ai/flashinfer#320: lengths are counted in tokens, so a last page cannot be overfull;
// a negative length is refused.
TEST(Faults, B128_NegativeLengthIsRefused) {
  PagedCall paged(-1, 16, 4);
  paged.call.ExpectRefused(HEED_INVALID_ARGUMENT, {"seqused_kv[0] = -1"});
}

// Dao-AILab/flash-attention#824: any page size, all equal to the contiguous result.
TEST(Faults, B131_AnyPageSize) {
  for (const int page_slots : {1, 8, 16, 32, 64, 100, 128, 256}) {
    for (const char* element : {"f32", "bf16"}) {
      ExpectCasePasses("fwd:b2:hq4:hkv2:sq3:skv300:d32:dv32:paged" + std::to_string(page_slots) +
                       ":" + element + ":causal:seqused-kv:s" + std::to_string(page_slots));
    }
  }
}

// pytorch/torchtitan#3235: a decode loop through every length, workspace full of NaN.
TEST(Faults, B138_DecodeLoopThroughEveryLength) {
  for (int kv_len = 1; kv_len <= 600; kv_len += kv_len < 140 ? 1 : 23) {
    ExpectCasePasses("fwd:b4:hq2:hkv1:sq1:skv" + std::to_string(kv_len) +
                     ":d16:dv16:paged16:f32:causal:seqused-kv:workspace:s" +
                     std::to_string(kv_len));
  }
}

// pytorch/pytorch#194167: every row of the batch is written.
TEST(Faults, B139_EveryRowOfADecodeBatchIsWritten) {
  ExpectCasePasses("fwd:b2:hq4:hkv4:sq1:skv1024:d64:dv64:paged256:f16:seqused-kv:s1");
}

// flashinfer-ai/flashinfer#4382: identical requests give identical bits.
TEST(Faults, B102_IdenticalRequestsAgree) {
  for (std::int64_t q_len = 1; q_len <= 8; ++q_len) {
    AttentionCall call(Element::kF16, {4, q_len, 8, 128}, {4, 2600, 1, 128}, {4, 2600, 1, 128});
    call.FillNormal(3);
    for (StridedTensor* tensor : {&call.q, &call.k, &call.v}) {
      tensor->Fill([&](Indices at) { return tensor->At({0, at[1], at[2], at[3]}); });
    }
    call.score.causal = HEED_CAUSAL_ON;
    ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
    ForEachIndex(call.o.shape(), [&](const Indices& at) {
      EXPECT_EQ(call.o.At(at), call.o.At({0, at[1], at[2], at[3]}));
    });
  }
}

// Dao-AILab/flash-attention#1417: the unused capacity of a cache changes no bit.
TEST(Faults, B132_CapacityChangesNoBit) {
  AttentionCall small(Element::kF32, {1, 1, 2, 32}, {1, 4096, 1, 32}, {1, 4096, 1, 32});
  AttentionCall large(Element::kF32, {1, 1, 2, 32}, {1, 16384, 1, 32}, {1, 16384, 1, 32});
  small.FillNormal(4);
  large.q.Fill([&](const Indices& at) { return small.q.At(at); });
  ForEachIndex(small.k.shape(), [&](const Indices& at) {
    large.k.Set(at, small.k.At(at));
    large.v.Set(at, small.v.At(at));
  });
  IntTensor used({4096});
  small.varlen.seqused_kv = large.varlen.seqused_kv = used.abi();
  small.OnEveryKernel([&] {
    large.exec = small.exec;
    ASSERT_EQ(large.Run(), HEED_OK) << heed_last_error();
    ExpectSameValues(small.o, large.o);
  });
}

}  // namespace
}  // namespace heed::test
