// Combine, dropout mask, and what decode and quantisation check. tests/decode and tests/session run
// them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "api/owned_tensor.h"

namespace heed::test {
namespace {

void ExpectStatus(heed_status_t got, heed_status_t wanted, const std::string& fragment) {
  EXPECT_STREQ(heed_status_name(got), heed_status_name(wanted)) << heed_last_error();
  EXPECT_NE(std::string(heed_last_error()).find(fragment), std::string::npos)
      << "message:  " << heed_last_error() << "\nfragment: " << fragment;
}

struct CombineCall {
  CombineCall() {
    args.o_partial = &o_partial.abi;
    args.lse_partial = &lse_partial.abi;
    args.o = &o.abi;
    args.lse = &lse.abi;
    args.exec = &exec;
    for (int index = 0; index < 12; ++index) {
      o_partial.data<float>()[index] = 1.0f;
      o_partial.data<float>()[12 + index] = 3.0f;
    }
  }

  OwnedTensor o_partial{kF32, {2, 1, 2, 3, 2}};
  OwnedTensor lse_partial{kF32, {2, 1, 3, 2}};
  OwnedTensor o{kF32, {1, 2, 3, 2}, 0xAB};
  OwnedTensor lse{kF32, {1, 3, 2}, 0xAB};
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_combine_args_t args = HEED_COMBINE_ARGS_INIT;
};

// Two parts of equal weight: their mean, and lse = log 2.
TEST(Combine, MergesOnCpuAndReference) {
  for (const heed_backend_t backend : {HEED_BACKEND_AUTO, HEED_BACKEND_REFERENCE}) {
    CombineCall call;
    call.exec.backend = backend;
    ASSERT_EQ(heed_combine(&call.args), HEED_OK) << heed_last_error();
    for (int index = 0; index < 12; ++index) EXPECT_FLOAT_EQ(call.o.data<float>()[index], 2.0f);
    for (int index = 0; index < 6; ++index) {
      EXPECT_FLOAT_EQ(call.lse.data<float>()[index], std::log(2.0f));
    }
  }
}

TEST(Combine, PlanNamesTheRow) {
  const CombineCall call;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_COMBINE, &call.args, &plan), HEED_OK) << heed_last_error();
  EXPECT_STREQ(plan.kernel_id, "cpu.any.combine.any.dany.q1k1");
  EXPECT_EQ(plan.is_slower_substitute, HEED_OFF);
}

TEST(Combine, BadInput) {
  CombineCall call;
  call.args.o_partial = nullptr;
  ExpectStatus(heed_combine(&call.args), HEED_INVALID_ARGUMENT, "o_partial = NULL: is required");
  call.args.o_partial = &call.o_partial.abi;
  call.lse_partial.shape[0] = 3;
  ExpectStatus(heed_combine(&call.args), HEED_INVALID_ARGUMENT,
               "lse_partial.shape[0] (parts) = 3: must equal o_partial.shape[0] (parts) = 2");
  call.lse_partial.shape[0] = 2;
  call.o_partial.abi.dtype = kF16;
  ExpectStatus(heed_combine(&call.args), HEED_INVALID_ARGUMENT,
               "o_partial.dtype = f16: must be f32");
  call.o_partial.abi.dtype = kF32;
  call.o.abi.data = call.o_partial.abi.data;
  ExpectStatus(heed_combine(&call.args), HEED_INVALID_ARGUMENT,
               "o: an output must not overlap o_partial");
}

TEST(DropoutMask, IsTheSameOnEveryBackend) {
  OwnedTensor on_cpu(kU8, {2, 3, 17, 33}, 0xAB);
  OwnedTensor on_reference(kU8, {2, 3, 17, 33}, 0xCD);
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_dropout_mask_args_t args = HEED_DROPOUT_MASK_ARGS_INIT;
  args.dropout_p = 0.25;
  args.dropout_seed = 42;
  args.exec = &exec;
  args.mask = &on_cpu.abi;
  ASSERT_EQ(heed_dropout_mask(&args), HEED_OK) << heed_last_error();
  args.mask = &on_reference.abi;
  exec.backend = HEED_BACKEND_REFERENCE;
  ASSERT_EQ(heed_dropout_mask(&args), HEED_OK) << heed_last_error();
  int kept = 0;
  constexpr int kElems = 2 * 3 * 17 * 33;
  for (int index = 0; index < kElems; ++index) {
    ASSERT_EQ(on_cpu.data<std::uint8_t>()[index], on_reference.data<std::uint8_t>()[index]);
    kept += on_cpu.data<std::uint8_t>()[index];
  }
  // 3366 draws of p = 3/4: six standard deviations are 0.045.
  EXPECT_NEAR(kept / static_cast<double>(kElems), 0.75, 0.045);
}

TEST(DropoutMask, BadInput) {
  OwnedTensor mask(kU8, {1, 1, 4, 4});
  heed_dropout_mask_args_t args = HEED_DROPOUT_MASK_ARGS_INIT;
  ExpectStatus(heed_dropout_mask(&args), HEED_INVALID_ARGUMENT, "mask = NULL: is required");
  args.mask = &mask.abi;
  args.dropout_p = 1.0;
  ExpectStatus(heed_dropout_mask(&args), HEED_INVALID_ARGUMENT,
               "dropout_p = 1: must be at least 0 and below 1");
  args.dropout_p = 0.5;
  mask.abi.dtype = kI8;
  ExpectStatus(heed_dropout_mask(&args), HEED_INVALID_ARGUMENT,
               "mask.dtype = i8: must be one of u8, bool");
}

struct DecodeCall {
  DecodeCall() {
    block_table.data<std::int32_t>()[1] = 2;
    args.q = &q.abi;
    args.k_cache = &k_cache.abi;
    args.v_cache = &v_cache.abi;
    args.o = &o.abi;
    args.cache_lengths = &cache_lengths.abi;
    args.score = &score;
    args.quant = &quant;
  }
  DecodeCall(const DecodeCall&) = delete;
  DecodeCall& operator=(const DecodeCall&) = delete;

  void Append() {
    args.k_new = &k_new.abi;
    args.v_new = &v_new.abi;
  }

  OwnedTensor q{kF32, {2, 1, 4, 8}};
  OwnedTensor k_cache{kF32, {2, 16, 2, 8}};
  OwnedTensor v_cache{kF32, {2, 16, 2, 8}};
  OwnedTensor o{kF32, {2, 1, 4, 8}};
  OwnedTensor k_new{kF32, {2, 1, 2, 8}};
  OwnedTensor v_new{kF32, {2, 1, 2, 8}};
  OwnedTensor cache_lengths = OwnedTensor::Indices({3, 4});
  OwnedTensor indices = OwnedTensor::Indices({1, 2});
  OwnedTensor block_table{kI32, {2, 1}};  // pages of 16 slots
  OwnedTensor scales{kF32, {2, 16, 2, 1}};
  OwnedTensor rotary{kF32, {3, 4}};
  OwnedTensor three{kF32, {3}};
  double bad_scale = std::nan("");
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_kv_quant_args_t quant = HEED_KV_QUANT_ARGS_INIT;
  heed_paging_args_t paging = HEED_PAGING_ARGS_INIT;
  heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
};

TEST(Decode, PlanNamesTheRow) {
  const DecodeCall call;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_DECODE, &call.args, &plan), HEED_OK) << heed_last_error();
  EXPECT_NE(std::string(plan.kernel_id).find(".decode.any.d576.q32k128"), std::string::npos);
  EXPECT_EQ(plan.num_tasks, 4);  // two sequences of two KV heads
  EXPECT_EQ(plan.num_splits, 1);
  std::size_t needed_bytes = 0;
  ASSERT_EQ(heed_explain(HEED_OP_DECODE, &call.args, nullptr, 0, &needed_bytes), HEED_OK);
  std::string text(needed_bytes, ' ');
  ASSERT_EQ(heed_explain(HEED_OP_DECODE, &call.args, text.data(), text.size(), nullptr), HEED_OK);
  EXPECT_NE(text.find("cache: plain, contiguous\n"), std::string::npos) << text;
}

TEST(Decode, BadInput) {
  DecodeCall call;
  call.args.cache_lengths = nullptr;
  ExpectStatus(heed_decode(&call.args), HEED_INVALID_ARGUMENT, "cache_lengths = NULL");
  call.args.cache_lengths = &call.cache_lengths.abi;
  call.args.k_new = &call.q.abi;
  ExpectStatus(heed_decode(&call.args), HEED_INVALID_ARGUMENT,
               "k_new, v_new: must be given together");
  call.args.k_new = nullptr;
  call.args.num_splits = -1;
  ExpectStatus(heed_decode(&call.args), HEED_INVALID_ARGUMENT, "num_splits = -1");
  ExpectStatus(heed_decode(nullptr), HEED_INVALID_ARGUMENT, "args = NULL");
}

// Whatever no device could run is said before what this build lacks.
TEST(Decode, BadArgumentsComeFirst) {
  using Spoil = void (*)(DecodeCall&);
  struct Case {
    Spoil spoil;
    const char* fragment;
  };
  const Case cases[] = {
      {[](DecodeCall& call) { call.score.scale = &call.bad_scale; }, "score.scale = nan"},
      {[](DecodeCall& call) { call.score.softcap = -1.0; }, "score.softcap = -1"},
      {[](DecodeCall& call) { call.score.window_left = -5; }, "score.window_left = -5"},
      {[](DecodeCall& call) { call.score.dropout_p = 2.0; }, "score.dropout_p = 2"},
      {[](DecodeCall& call) { call.score.sinks = &call.three.abi; },
       "score.sinks.shape[0] (num_q_heads) = 3: must be 4"},
      {[](DecodeCall& call) { call.score.bias = &call.three.abi; },
       "score.bias.shape[0] (kv_len) = 3: must be 1 or at least 4"},
      {[](DecodeCall& call) { call.k_cache.shape[3] = 4; },
       "k_cache.shape[3] (head_dim) = 4: must equal q.shape[3] (head_dim) = 8"},
      {[](DecodeCall& call) { call.v_cache.shape[3] = 4; },
       "v_cache.shape[3] (head_dim) = 4: must equal o.shape[3] (head_dim_v) = 8"},
      {[](DecodeCall& call) { call.v_cache.shape[1] = 8; }, "v_cache.shape[1] (slots) = 8"},
      {[](DecodeCall& call) { call.k_cache.abi.dtype = kI32; },
       "k_cache.dtype = i32: must equal q.dtype = f32"},
      {[](DecodeCall& call) { call.q.shape[2] = call.o.shape[2] = 3; },
       "k_cache.shape[2] (num_kv_heads) = 2: must divide q.shape[2] (num_q_heads) = 3"},
      {[](DecodeCall& call) { call.k_cache.shape[0] = call.v_cache.shape[0] = 1; },
       "k_cache.shape[0] (cache_batch) = 1: must be at least q.shape[0] (batch) = 2"},
      {[](DecodeCall& call) { call.cache_lengths.data<std::int32_t>()[1] = 17; },
       "cache_lengths[1] = 17: must be from 0 to 16"},
      {[](DecodeCall& call) {
         call.Append();
         call.cache_lengths.data<std::int32_t>()[1] = 16;
       },
       "cache_lengths[1] = 16: must be from 0 to 15 (slots less appended tokens)"},
      {[](DecodeCall& call) {
         call.Append();
         call.v_new.shape[2] = 1;
       },
       "v_new.shape[2] (num_kv_heads) = 1: must equal k_cache.shape[2] (num_kv_heads) = 2"},
      {[](DecodeCall& call) {
         call.Append();
         call.k_new.abi.dtype = kI32;
       },
       "k_new.dtype = i32: must equal q.dtype = f32"},
      {[](DecodeCall& call) { call.args.cache_batch_index = &call.indices.abi; },
       "cache_batch_index[1] = 2: must be from 0 to 1 (last row of k_cache)"},
      {[](DecodeCall& call) {
         call.Append();
         call.indices.data<std::int32_t>()[0] = call.indices.data<std::int32_t>()[1] = 1;
         call.args.cache_batch_index = &call.indices.abi;
       },
       "cache_batch_index[1] = 1: must differ from cache_batch_index[0] where k_new is given"},
      {[](DecodeCall& call) {
         call.indices.data<std::int32_t>()[0] = 9;
         call.args.cache_leftpad = &call.indices.abi;
       },
       "cache_leftpad[0] = 9: must be from 0 to 3"},
      {[](DecodeCall& call) { call.args.rotary_cos = call.args.rotary_sin = &call.rotary.abi; },
       "rotary_cos.shape[0] (rows) = 3: must be at least the longest sequence, 4 tokens"},
      {[](DecodeCall& call) {
         call.rotary.shape[1] = 5;
         call.args.rotary_cos = call.args.rotary_sin = &call.rotary.abi;
       },
       "rotary_cos.shape[1] (rotary_dim / 2) = 5: must be at most half of q.shape[3]"},
      {[](DecodeCall& call) { call.args.lse = &call.three.abi; },
       "lse.ndim = 1: must be 3 [batch, num_q_heads, new_tokens]"},
      {[](DecodeCall& call) { call.args.paging = &call.paging; }, "paging.block_table = NULL"},
      {[](DecodeCall& call) {
         call.paging.block_table = &call.block_table.abi;
         call.args.paging = &call.paging;
       },
       "paging.block_table[1][0] = 2: must be below k_cache.shape[0] (num_pages) = 2"},
      {[](DecodeCall& call) { call.quant.format = HEED_KV_INT8; },
       "k_cache.dtype = f32: must be one of u8, i8"},
      {[](DecodeCall& call) {
         call.quant.format = HEED_KV_INT4;
         call.k_cache.abi.dtype = call.v_cache.abi.dtype = kU8;
       },
       "k_cache.shape[3] (head_dim) = 8: must be 4 for a head dim of 8"},
      {[](DecodeCall& call) {
         call.quant.format = HEED_KV_INT8;
         call.k_cache.abi.dtype = call.v_cache.abi.dtype = kU8;
       },
       "quant.k_scales = NULL: is required"},
      {[](DecodeCall& call) { call.quant.layout = HEED_KV_LAYOUT_INTERLEAVED; },
       "quant.layout: must be HEED_KV_LAYOUT_ROWS for HEED_KV_PLAIN"},
      {[](DecodeCall& call) {
         call.rotary.shape[0] = 4;
         call.rotary.shape[1] = 3;
         call.args.rotary_cos = call.args.rotary_sin = &call.rotary.abi;
       },
       "rotary_cos: must be NULL without k_new"},
      {[](DecodeCall& call) { call.quant.k_scales = &call.three.abi; },
       "quant.k_scales: must be NULL for a format without scales of its own"},
  };
  for (const Case& each : cases) {
    DecodeCall call;
    each.spoil(call);
    ExpectStatus(heed_decode(&call.args), HEED_INVALID_ARGUMENT, each.fragment);
  }
}

TEST(Decode, LegalCallsRun) {
  using Change = void (*)(DecodeCall&);
  const Change changes[] = {
      [](DecodeCall& call) { call.Append(); },
      [](DecodeCall& call) {
        call.indices.data<std::int32_t>()[1] = 0;
        call.args.cache_batch_index = call.args.cache_leftpad = &call.indices.abi;
      },
      [](DecodeCall& call) {
        call.block_table.data<std::int32_t>()[1] = 0;
        call.paging.block_table = &call.block_table.abi;
        call.args.paging = &call.paging;
      },
      [](DecodeCall& call) {
        call.quant = {sizeof(call.quant), HEED_KV_INT8, HEED_KV_LAYOUT_ROWS, &call.scales.abi,
                      &call.scales.abi};
        call.k_cache.abi.dtype = call.v_cache.abi.dtype = kU8;
      },
  };
  for (const Change change : changes) {
    DecodeCall call;
    change(call);
    EXPECT_EQ(heed_decode(&call.args), HEED_OK) << heed_last_error();
  }
}

TEST(QuantizeKv, BadInput) {
  OwnedTensor source(kF32, {1, 4, 2, 8});
  OwnedTensor payload(kU8, {1, 4, 2, 8});
  OwnedTensor scales(kF32, {1, 4, 2, 1});
  heed_quantize_kv_args_t args = HEED_QUANTIZE_KV_ARGS_INIT;
  ExpectStatus(heed_quantize_kv(&args), HEED_INVALID_ARGUMENT, "source = NULL: is required");
  args.source = &source.abi;
  ExpectStatus(heed_quantize_kv(&args), HEED_INVALID_ARGUMENT, "payload = NULL: is required");
  args.payload = &payload.abi;
  ExpectStatus(heed_quantize_kv(&args), HEED_INVALID_ARGUMENT, "scales = NULL: is required");
  args.scales = &scales.abi;
  EXPECT_EQ(heed_quantize_kv(&args), HEED_OK) << heed_last_error();
  args.layout = HEED_KV_LAYOUT_INTERLEAVED;
  ExpectStatus(heed_quantize_kv(&args), HEED_INVALID_ARGUMENT,
               "payload.shape[1] (slots) = 4: must be a multiple of 16 in the interleaved layout");
  args.format = HEED_KV_FP8_E4M3;
  ExpectStatus(heed_quantize_kv(&args), HEED_INVALID_ARGUMENT,
               "payload: the interleaved layout is for HEED_KV_INT8 only");
  args.layout = HEED_KV_LAYOUT_ROWS;
  args.format = HEED_KV_PLAIN;
  ExpectStatus(heed_quantize_kv(&args), HEED_INVALID_ARGUMENT, "format = HEED_KV_PLAIN");
}

TEST(Session, NullHandles) {
  EXPECT_EQ(heed_session_destroy(nullptr), HEED_OK);
  ExpectStatus(heed_session_decode(nullptr), HEED_INVALID_ARGUMENT, "session = NULL: is required");
  ExpectStatus(heed_session_synchronize(nullptr), HEED_INVALID_ARGUMENT, "session = NULL");
  ExpectStatus(heed_session_truncate(nullptr, 0), HEED_INVALID_ARGUMENT, "session = NULL");
  ExpectStatus(heed_session_append(nullptr, nullptr, nullptr, nullptr), HEED_INVALID_ARGUMENT,
               "session = NULL");
  ExpectStatus(heed_session_output(nullptr, nullptr), HEED_INVALID_ARGUMENT, "session = NULL");
  ExpectStatus(heed_session_query(nullptr, nullptr), HEED_INVALID_ARGUMENT, "session = NULL");
}

}  // namespace
}  // namespace heed::test
