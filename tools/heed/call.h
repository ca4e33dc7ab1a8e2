// One forward call: the tool's tensors and options bound to the C ABI's structs.
#ifndef HEED_TOOLS_CALL_H_
#define HEED_TOOLS_CALL_H_

#include <array>
#include <cstdint>
#include <string>

#include "heed/heed.h"
#include "inputs.h"
#include "options.h"
#include "tensor.h"

namespace heed::tools {

// Throws LibraryError (or InputError for HEED_INVALID_ARGUMENT) unless status is HEED_OK.
void RequireOk(heed_status_t status);

// A heed_tensor_t over a Tensor that outlives it.
class TensorBinding {
 public:
  // The ABI's [.., row, head, dim] order over memory in the order of the layout.
  void BindRows(const Tensor& tensor, Layout layout);
  void BindCompact(const Tensor& tensor);
  // A tensor of this shape on CUDA device `ordinal`, without data: enough to plan and to tune.
  void PlaceOnGpu(std::int32_t ordinal);
  const heed_tensor_t* get() const { return &abi_; }

 private:
  void Bind(const Tensor& tensor);

  heed_tensor_t abi_ = {};
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_;
};

struct Outputs {
  Tensor o;
  Tensor lse;
};
// Shapes that follow from the inputs; every element NaN, so that nothing unwritten goes unnoticed.
// Throws InputError when q, k or v is neither 3-D nor 4-D.
Outputs MakeOutputs(const Inputs& inputs);
// The same without bytes, for planning.
Outputs OutputShapes(const Inputs& inputs);

// Holds pointers into itself, inputs and outputs: neither copied nor moved.
class ForwardCall {
 public:
  ForwardCall(const Inputs& inputs, const Options& options, const Outputs& outputs);
  ForwardCall(const ForwardCall&) = delete;
  ForwardCall& operator=(const ForwardCall&) = delete;

  heed_exec_args_t* exec() { return &exec_; }
  const heed_forward_args_t* args() const { return &args_; }
  // Tensors as of TensorBinding::PlaceOnGpu; sequences have at most these rows.
  void PlaceOnGpu(std::int32_t ordinal, std::int64_t max_q_len, std::int64_t max_kv_len);
  // Scratch kept over many calls, so that timings do not include the allocator.
  void UseWorkspace(void* workspace, std::size_t num_bytes);

  // These throw as RequireOk.
  void Run() const;
  heed_plan_info_t Plan() const;
  std::string Explain() const;

 private:
  void BindOperands(const Inputs& inputs);
  void BindScore(const Options& options);
  const heed_tensor_t* Bound(const Inputs& inputs, Operand operand) const;

  std::array<TensorBinding, kNumOperands> operands_;
  TensorBinding o_, lse_;
  double scale_ = 0.0;
  std::string kernel_;
  heed_score_args_t score_ = HEED_SCORE_ARGS_INIT;
  heed_varlen_args_t varlen_ = HEED_VARLEN_ARGS_INIT;
  heed_paging_args_t paging_ = HEED_PAGING_ARGS_INIT;
  heed_exec_args_t exec_ = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t args_ = HEED_FORWARD_ARGS_INIT;
};

}  // namespace heed::tools

#endif  // HEED_TOOLS_CALL_H_
