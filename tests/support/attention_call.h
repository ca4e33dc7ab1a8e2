// One hand-written heed_forward() call with all of its tensors, for tests that state their own
// right values.
#ifndef HEED_TESTS_SUPPORT_ATTENTION_CALL_H_
#define HEED_TESTS_SUPPORT_ATTENTION_CALL_H_

#include <functional>
#include <string>
#include <vector>

#include "heed/heed.h"
#include "support/strided_tensor.h"

namespace heed::test {

class AttentionCall {
 public:
  // Shapes as in heed.h: [B,S,H,D], packed [T,H,D], or pools. o and lse follow from q and v.
  AttentionCall(Element element, Indices q_shape, Indices k_shape, Indices v_shape);

  // N(0, 1) in q, k and v.
  void FillNormal(std::uint64_t seed);
  // Poisons o and lse and calls heed_forward(). Inputs must survive, and so must memory around
  // all tensors: a change is a test failure.
  heed_status_t Run();
  // Runs on every forward row that can run here and takes the element type, the oracle included;
  // calls check() after each run, which must succeed. Run() inside check() uses the same row.
  void OnEveryKernel(const std::function<void()>& check);
  // The call must fail with `status`, mention every text, and leave o and lse as they were.
  void ExpectRefused(heed_status_t status, const std::vector<std::string>& texts);

  // o of one row as a list; `index` without its last coordinate.
  std::vector<double> OutputRow(const Indices& index) const;

  StridedTensor q, k, v, o, lse;
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_varlen_args_t varlen = HEED_VARLEN_ARGS_INIT;
  heed_paging_args_t paging = HEED_PAGING_ARGS_INIT;  // connect with args.paging = &paging
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
};

// A tensor of int32 numbers: lengths, offsets, block-table rows.
class IntTensor : public StridedTensor {
 public:
  explicit IntTensor(const std::vector<std::int64_t>& values);
  IntTensor(Indices shape, const std::vector<std::int64_t>& values);
};

// Every element of both tensors has the same value, or NaN on both sides.
void ExpectSameValues(const StridedTensor& expected, const StridedTensor& actual);
// The case passes on every forward row that can run here.
void ExpectCasePasses(const std::string& case_id);

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_ATTENTION_CALL_H_
