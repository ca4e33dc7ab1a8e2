#include "api/forward_call.h"

#include <gtest/gtest.h>

namespace heed::test {

ForwardCall::ForwardCall() {
  args.q = &q.abi;
  args.k = &k.abi;
  args.v = &v.abi;
  args.o = &o.abi;
  args.lse = &lse.abi;
  args.score = &score;
  args.varlen = &varlen;
  args.exec = &exec;
}

void ForwardCall::PackQ() {
  q = OwnedTensor(kF32, {6, 4, 8});
  o = OwnedTensor(kF32, {6, 4, 6}, 0xAB);
  lse = OwnedTensor(kF32, {4, 6}, 0xAB);
  varlen.cu_seqlens_q = &cu_seqlens_q.abi;
}

void ForwardCall::PackKv() {
  k = OwnedTensor(kF32, {10, 2, 8});
  v = OwnedTensor(kF32, {10, 2, 6});
  varlen.cu_seqlens_kv = &cu_seqlens_kv.abi;
}

void ForwardCall::Page() {
  constexpr std::int32_t kInvalid = -7;
  const std::int32_t table[] = {5, 0, kInvalid, 2, kInvalid, kInvalid};
  k = OwnedTensor(kF32, {6, 4, 2, 8});
  v = OwnedTensor(kF32, {6, 4, 2, 6});
  std::memcpy(block_table.data<std::int32_t>(), table, sizeof(table));
  seqused_kv = OwnedTensor::Indices({7, 3});
  varlen.seqused_kv = &seqused_kv.abi;
  paging.block_table = &block_table.abi;
  args.paging = &paging;
}

void ExpectRefused(const ForwardCall& call, heed_status_t status, const std::string& fragment) {
  const auto o_before = call.o.bytes();
  const auto lse_before = call.lse.bytes();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const heed_status_t got = call.Run();
  const std::string printed =
      testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  EXPECT_STREQ(heed_status_name(got), heed_status_name(status)) << heed_last_error();
  EXPECT_NE(std::string(heed_last_error()).find(fragment), std::string::npos)
      << "message:  " << heed_last_error() << "\nfragment: " << fragment;
  EXPECT_EQ(call.o.bytes(), o_before) << "o was written";
  EXPECT_EQ(call.lse.bytes(), lse_before) << "lse was written";
  EXPECT_EQ(printed, "");
}

void ExpectRefused(const std::function<void(ForwardCall&)>& spoil, heed_status_t status,
                   const std::string& fragment) {
  ForwardCall call;
  spoil(call);
  ExpectRefused(call, status, fragment);
}

void ExpectAccepted(const std::function<void(ForwardCall&)>& change) {
  ForwardCall call;
  change(call);
  EXPECT_EQ(call.Run(), HEED_OK) << heed_last_error();
}

}  // namespace heed::test
