// A backward case brought to life: tensors in guarded memory and the arguments of heed_backward().
#ifndef HEED_TESTS_SUPPORT_BACKWARD_INSTANCE_H_
#define HEED_TESTS_SUPPORT_BACKWARD_INSTANCE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heed/heed.h"
#include "support/backward_case.h"
#include "support/forward_instance.h"
#include "support/strided_tensor.h"

namespace heed::test {

class BackwardInstance {
 public:
  // o and lse come from the oracle in double, rounded once to their types; in rows past a length
  // they hold poison, as does every slot that takes no part (BackwardCase::dead_poison).
  explicit BackwardInstance(const BackwardCase& backward_case);
  // The same problem in float64 and compact memory, for the oracle. d_sinks stays fp32.
  std::unique_ptr<BackwardInstance> Upcast() const;

  BackwardInstance(const BackwardInstance&) = delete;
  BackwardInstance& operator=(const BackwardInstance&) = delete;

  const BackwardCase& description() const { return case_; }
  const ForwardInstance& forward() const { return *forward_; }
  // o and lse before they were rounded; of instances that Upcast() made, null.
  const ForwardInstance* exact_forward() const { return exact_forward_.get(); }
  // Not empty when the oracle's forward call refused the case.
  const std::string& forward_failure() const { return forward_failure_; }
  const heed_backward_args_t* args() const { return &args_; }
  heed_exec_args_t& exec() { return exec_; }

  // Poison in every gradient, then a snapshot of every tensor.
  void PrepareRun();
  // Empty when inputs are unchanged and gradients changed only where they have elements; else the
  // tensor's name and the place.
  std::string DescribeStrayWrite() const;

  // Logical coordinates: sequence, head, row and dim.
  double OutputGradient(std::int64_t b, std::int64_t row, std::int64_t head,
                        std::int64_t dim) const;
  double LseGradient(std::int64_t b, std::int64_t head, std::int64_t row) const;  // 0 without d_lse
  // What dropout multiplies a weight with: 0 or 1 / (1 - p).
  double DropoutFactor(std::int64_t b, std::int64_t head, std::int64_t row,
                       std::int64_t token) const;
  // Score in natural-log units without scale * q.k (and softcap): bias and ALiBi.
  double AddedScore(std::int64_t b, std::int64_t head, std::int64_t row, std::int64_t token) const;

  // Where the gradients of logical elements lie.
  Indices QIndex(std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) const;
  Indices KvIndex(std::int64_t b, std::int64_t token, std::int64_t kv_head, std::int64_t dim) const;
  Indices BiasIndex(std::int64_t b, std::int64_t head, std::int64_t row, std::int64_t token) const;

  struct Gradient {
    const char* name;
    StridedTensor* tensor;  // null when the case does not ask for it
  };
  // dq, dk, dv, d_bias, d_sinks.
  std::vector<Gradient> gradients() const;
  StridedTensor& dq() const { return *dq_; }
  StridedTensor& dk() const { return *dk_; }
  StridedTensor& dv() const { return *dv_; }
  StridedTensor* d_bias() const { return d_bias_.get(); }
  StridedTensor* d_sinks() const { return d_sinks_.get(); }

 private:
  BackwardInstance() = default;

  void MakeTensors();
  void MakeBiasGradient(Placement placement);
  void ReduceBias(const StridedTensor& original);
  void FillDeadSlots();
  void FillDeadKeys(std::int64_t b, std::int64_t kv_head);
  void FillDeadQueries(std::int64_t b, std::int64_t head);
  void FillGradientsOfResults();
  void FillForwardResults();
  void ConnectArgs();

  BackwardCase case_;
  std::unique_ptr<ForwardInstance> forward_, exact_forward_;
  std::unique_ptr<StridedTensor> d_o_, d_lse_, dq_, dk_, dv_, d_bias_, d_sinks_;
  std::string forward_failure_;
  heed_exec_args_t exec_ = HEED_EXEC_ARGS_INIT;
  heed_backward_args_t args_ = HEED_BACKWARD_ARGS_INIT;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_BACKWARD_INSTANCE_H_
