// A case brought to life: tensors in guarded memory and the argument structs of heed_forward().
#ifndef HEED_TESTS_SUPPORT_FORWARD_INSTANCE_H_
#define HEED_TESTS_SUPPORT_FORWARD_INSTANCE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heed/heed.h"
#include "support/forward_case.h"
#include "support/lengths.h"
#include "support/strided_tensor.h"

namespace heed::test {

// Index into a bias, mask or d_bias of element `index` of [B,Hq,Sq,Skv]: axes of size 1 repeat.
Indices ScoreIndex(const StridedTensor& tensor, Indices index);

class ForwardInstance {
 public:
  // Fills every slot that takes part; all others (hidden keys, rows past a length, free pages,
  // gaps between strided rows, queries that see nothing) hold poison.
  explicit ForwardInstance(const ForwardCase& forward_case);
  // The same problem in float64 and compact memory, for the oracle; always with lse.
  std::unique_ptr<ForwardInstance> Upcast() const;

  ForwardInstance(const ForwardInstance&) = delete;
  ForwardInstance& operator=(const ForwardInstance&) = delete;

  const ForwardCase& description() const { return case_; }
  const Lengths& lengths() const { return lengths_; }
  const heed_forward_args_t* args() const { return &args_; }
  heed_exec_args_t& exec() { return exec_; }

  // Poison in o and lse, then a snapshot of every tensor.
  void PrepareRun();
  // Empty when inputs are unchanged and outputs changed only where a sequence owns the element;
  // else the tensor's name and the place.
  std::string DescribeStrayWrite() const;

  // Logical coordinates: sequence, head, row and dim.
  double Output(std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) const;
  double Lse(std::int64_t b, std::int64_t head, std::int64_t row) const;
  bool has_lse() const { return lse_ != nullptr; }
  double Query(std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) const;
  double Key(std::int64_t b, std::int64_t token, std::int64_t kv_head, std::int64_t dim) const;
  double Value(std::int64_t b, std::int64_t token, std::int64_t kv_head, std::int64_t dim) const;
  double Bias(std::int64_t b, std::int64_t head, std::int64_t row, std::int64_t token) const;
  double AlibiSlope(std::int64_t b, std::int64_t head) const;
  double Sink(std::int64_t head) const;
  bool has_bias() const { return bias_ != nullptr; }
  bool Visible(std::int64_t b, std::int64_t head, std::int64_t row, std::int64_t token) const;
  bool SeesAnyKey(std::int64_t b, std::int64_t head, std::int64_t row) const;
  double scale() const { return scale_; }

  const StridedTensor& q() const { return *q_; }

 private:
  ForwardInstance() = default;
  friend class InstanceBuilder;
  friend class BackwardInstance;

  void TakeSnapshots();

  Indices QIndex(std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) const;
  Indices KvIndex(std::int64_t b, std::int64_t token, std::int64_t kv_head, std::int64_t dim) const;
  Indices LseIndex(std::int64_t b, std::int64_t head, std::int64_t row) const;
  void SetBias(std::int64_t b, std::int64_t head, std::int64_t row, std::int64_t token,
               double value);
  bool OwnsOutput(const Indices& index) const;
  bool OwnsLse(const Indices& index) const;
  Indices LseShape() const;
  void ConnectArgs();

  ForwardCase case_;
  Lengths lengths_;
  std::unique_ptr<StridedTensor> q_, k_, v_, o_, lse_;
  std::unique_ptr<StridedTensor> bias_, mask_, alibi_slopes_, sinks_;
  std::unique_ptr<StridedTensor> cu_seqlens_q_, cu_seqlens_kv_, seqused_q_, seqused_kv_;
  std::unique_ptr<StridedTensor> block_table_;
  double scale_ = 1.0;
  heed_score_args_t score_ = HEED_SCORE_ARGS_INIT;
  heed_varlen_args_t varlen_ = HEED_VARLEN_ARGS_INIT;
  heed_paging_args_t paging_ = HEED_PAGING_ARGS_INIT;
  heed_exec_args_t exec_ = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t args_ = HEED_FORWARD_ARGS_INIT;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_FORWARD_INSTANCE_H_
