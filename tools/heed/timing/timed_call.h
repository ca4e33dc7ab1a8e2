// The call that a case times, with the tensors it reads and writes.
#ifndef HEED_TOOLS_TIMING_TIMED_CALL_H_
#define HEED_TOOLS_TIMING_TIMED_CALL_H_

#include <array>
#include <cstddef>

#include "quantised.h"
#include "tools/heed/call.h"

namespace heed::tools {

// Of options.bench.op over drawn tensors. decode: the keys and values are the cache, full, and
// nothing is appended. Holds pointers into itself: neither copied nor moved.
class TimedCall {
 public:
  // Runs the forward pass once for the backward pass, whose kernel alone options.exec.kernel names.
  explicit TimedCall(const Options& options);
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;

  // These throw as RequireOk.
  void Run() const;
  heed_plan_info_t Plan() const;

  const Inputs& inputs() const { return inputs_; }
  const Outputs& outputs() const { return outputs_; }
  std::size_t tensor_bytes() const;
  // Bytes of keys and values.
  std::size_t cache_bytes() const;

 private:
  void BindInt8(const Options& options);
  void BindBackward(const Options& options);
  void BindDecode();

  BenchOp op_;
  Inputs inputs_;
  Outputs outputs_;
  Quantised quantised_;  // takes the place of q, k and v in inputs_
  ForwardCall forward_;
  heed_exec_args_t exec_;
  // dO, dQ, dK, dV; the scales of q, k, v; or the lengths of the cache and the scales of k and v.
  std::array<Tensor, 4> tensors_;
  std::array<TensorBinding, 4> bindings_;
  std::string kernel_;
  heed_int8_args_t int8_ = HEED_INT8_ARGS_INIT;
  heed_forward_args_t int8_forward_ = HEED_FORWARD_ARGS_INIT;
  heed_backward_args_t backward_ = HEED_BACKWARD_ARGS_INIT;
  heed_kv_quant_args_t kv_quant_ = HEED_KV_QUANT_ARGS_INIT;
  heed_decode_args_t decode_ = HEED_DECODE_ARGS_INIT;
};

}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_TIMED_CALL_H_
