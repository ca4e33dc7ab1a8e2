// From a pack to the launch without a compiler: what heed_pack_build was asked for is what calls
// find. One process, in this order: the library looks for packs when it needs its first kernel.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuda/fake_driver/device_tensors.h"
#include "cuda/fake_driver/fake_driver.h"
#include "heed/heed.h"

namespace heed::test {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

heed_pack_args_t OrderFor90(const std::string& path) {
  heed_pack_args_t args = HEED_PACK_ARGS_INIT;
  args.path = path.c_str();
  args.archs = "90a";
  return args;
}

TEST(PackCall, ServesFeaturesAndCallsWithoutNvrtc) {
  const std::string path = testing::TempDir() + "heed_pack_call_test.heedpack";
  // Many query tiles at the row's head dim, capped: a row of the list with a feature. One query of
  // a paged cache, split, at a head dim of no row: a call.
  FakeCall capped(8, 512, 32, 64);
  capped.score.softcap = 20.0;
  FakeCall decode(1, 1, 2, 40);
  DeviceTensor pool({512, 16, 2, 40}), table({1, 512}, {HEED_DTYPE_INT, 32, 1}),
      used({1}, {HEED_DTYPE_INT, 32, 1});
  heed_varlen_args_t varlen = HEED_VARLEN_ARGS_INIT;
  varlen.seqused_kv = used.abi();
  varlen.max_seqlen_q = 1;
  varlen.max_seqlen_kv = 8192;
  heed_paging_args_t paging = HEED_PAGING_ARGS_INIT;
  paging.block_table = table.abi();
  decode.args.k = decode.args.v = pool.abi();
  decode.args.varlen = &varlen;
  decode.args.paging = &paging;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &decode.args, &plan), HEED_OK) << heed_last_error();
  ASSERT_GT(plan.num_splits, 1);

  FakeDecode quantised(96);  // a head dim of which packs hold no decode kernels otherwise
  heed_pack_args_t order = OrderFor90(path);
  const heed_forward_args_t* const calls[] = {&decode.args};
  const heed_decode_args_t* const decode_calls[] = {&quantised.args};
  order.features = "softcap";
  order.calls = calls;
  order.num_calls = 1;
  order.decode_calls = decode_calls;
  order.num_decode_calls = 1;
  order.kernels = "cuda.sm90.forward.f16.d64.*.softcap.full";
  const heed_status_t built = heed_pack_build(&order);
  if (built == HEED_UNAVAILABLE) {
    const char* required = std::getenv("HEED_REQUIRE_NVRTC");
    ASSERT_TRUE(required == nullptr || std::string(required) != "1") << heed_last_error();
    GTEST_SKIP() << "NOT TESTED: " << heed_last_error();
  }
  ASSERT_EQ(built, HEED_OK) << heed_last_error();
  EXPECT_EQ(heed_pack_verify(path.c_str()), HEED_OK) << heed_last_error();

  setenv("HEED_PACK", path.c_str(), 1);
  setenv("HEED_NVRTC", "/nowhere/libnvrtc.so", 1);
  EXPECT_EQ(heed_forward(&capped.args), HEED_OK) << heed_last_error();
  long long num_launches = NumFakeLaunches();
  EXPECT_EQ(heed_forward(&decode.args), HEED_OK) << heed_last_error();
  EXPECT_EQ(NumFakeLaunches(), num_launches + 2) << "the parts and their sum";
  num_launches = NumFakeLaunches();
  EXPECT_EQ(heed_decode(&quantised.args), HEED_OK) << heed_last_error();
  EXPECT_EQ(NumFakeLaunches(), num_launches + 2) << "append, attend";
  // What nobody asked for is not there.
  quantised.score.softcap = 20.0;
  EXPECT_EQ(heed_decode(&quantised.args), HEED_UNAVAILABLE);
  capped.score.dropout_p = 0.1;
  EXPECT_EQ(heed_forward(&capped.args), HEED_UNAVAILABLE);
  EXPECT_TRUE(Contains(heed_last_error(), "NVRTC")) << heed_last_error();
}

}  // namespace
}  // namespace heed::test
