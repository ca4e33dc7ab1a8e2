// A small valid forward call that tests spoil one argument at a time.
#ifndef HEED_TESTS_API_FORWARD_CALL_H_
#define HEED_TESTS_API_FORWARD_CALL_H_

#include <functional>
#include <memory>
#include <string>

#include "api/owned_tensor.h"
#include "heed/heed.h"

namespace heed::test {

// B = 2, Sq = 3, Skv = 5, Hq = 4, Hkv = 2, D = 8, Dv = 6, fp32, with lse.
struct ForwardCall {
  ForwardCall();
  ForwardCall(const ForwardCall&) = delete;
  ForwardCall& operator=(const ForwardCall&) = delete;

  // q [6, 4, 8] as sequences of 2 and 4 rows.
  void PackQ();
  // k and v [10, 2, ...] as sequences of 7 and 3 rows.
  void PackKv();
  // k and v in 6 pages of 4 slots; lengths 7 and 3; the table's unneeded entries are invalid.
  void Page();
  heed_status_t Run() const { return heed_forward(&args); }

  OwnedTensor q{kF32, {2, 3, 4, 8}};
  OwnedTensor k{kF32, {2, 5, 2, 8}};
  OwnedTensor v{kF32, {2, 5, 2, 6}};
  OwnedTensor o{kF32, {2, 3, 4, 6}, 0xAB};
  OwnedTensor lse{kF32, {2, 4, 3}, 0xAB};
  OwnedTensor cu_seqlens_q = OwnedTensor::Indices({0, 2, 6});
  OwnedTensor cu_seqlens_kv = OwnedTensor::Indices({0, 7, 10});
  OwnedTensor seqused_q = OwnedTensor::Indices({2, 3});
  OwnedTensor seqused_kv = OwnedTensor::Indices({5, 3});
  OwnedTensor block_table = OwnedTensor(kI32, {2, 3});
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_varlen_args_t varlen = HEED_VARLEN_ARGS_INIT;
  heed_paging_args_t paging = HEED_PAGING_ARGS_INIT;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
};

// The call is refused with this status, heed_last_error() contains `fragment`, o and lse keep every
// byte, and nothing reaches stdout or stderr.
void ExpectRefused(const ForwardCall& call, heed_status_t status, const std::string& fragment);
// The same after spoil() has changed a fresh valid call.
void ExpectRefused(const std::function<void(ForwardCall&)>& spoil, heed_status_t status,
                   const std::string& fragment);
// The call succeeds after change().
void ExpectAccepted(const std::function<void(ForwardCall&)>& change);

}  // namespace heed::test

#endif  // HEED_TESTS_API_FORWARD_CALL_H_
