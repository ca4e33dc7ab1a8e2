// Combine and dropout mask, which run; decode, quantisation and sessions, which have no row yet.
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
    args.q = &q.abi;
    args.k_cache = &k_cache.abi;
    args.v_cache = &v_cache.abi;
    args.o = &o.abi;
    args.cache_lengths = &cache_lengths.abi;
  }

  OwnedTensor q{kF32, {2, 1, 4, 8}};
  OwnedTensor k_cache{kF32, {2, 16, 2, 8}};
  OwnedTensor v_cache{kF32, {2, 16, 2, 8}};
  OwnedTensor o{kF32, {2, 1, 4, 8}};
  OwnedTensor cache_lengths = OwnedTensor::Indices({3, 4});
  heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
};

TEST(Decode, HasNoRowYet) {
  const DecodeCall call;
  ExpectStatus(heed_decode(&call.args), HEED_UNSUPPORTED,
               "no kernel row for decode on backend cpu, f32, head dim 8; nearest: cpu.");
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ExpectStatus(heed_plan(HEED_OP_DECODE, &call.args, &plan), HEED_UNSUPPORTED, "(runs forward)");
  std::size_t needed_bytes = 0;
  EXPECT_EQ(heed_explain(HEED_OP_DECODE, &call.args, nullptr, 0, &needed_bytes), HEED_OK);
  EXPECT_GT(needed_bytes, 40u);
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

TEST(QuantizeKv, HasNoRowYet) {
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
  ExpectStatus(heed_quantize_kv(&args), HEED_UNSUPPORTED, "no kernel row for quantize_kv");
  args.format = HEED_KV_PLAIN;
  ExpectStatus(heed_quantize_kv(&args), HEED_INVALID_ARGUMENT, "format = HEED_KV_PLAIN");
}

TEST(Session, HasNoRowYet) {
  heed_session_config_t config = HEED_SESSION_CONFIG_INIT;
  heed_session_t* session = nullptr;
  ExpectStatus(heed_session_create(&config, nullptr), HEED_INVALID_ARGUMENT, "session = NULL");
  ExpectStatus(heed_session_create(&config, &session), HEED_INVALID_ARGUMENT,
               "config.num_sequences = 0: must be at least 1");
  config.num_sequences = 1;
  config.num_q_heads = 4;
  config.num_kv_heads = 3;
  config.head_dim = config.head_dim_v = 64;
  config.capacity_tokens = 128;
  ExpectStatus(heed_session_create(&config, &session), HEED_INVALID_ARGUMENT,
               "config.num_kv_heads = 3: must divide config.num_q_heads = 4");
  config.num_kv_heads = 2;
  ExpectStatus(heed_session_create(&config, &session), HEED_UNSUPPORTED,
               "no kernel row for decode on backend cpu, f32, head dim 64");
  EXPECT_EQ(session, nullptr);
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
