// The part of planning that all operations share: which row runs a request, and why not the others.
#ifndef HEED_CORE_CHOOSE_ROW_H_
#define HEED_CORE_CHOOSE_ROW_H_

#include "core/plan.h"

namespace heed::core {

// What the choice of a row depends on.
struct RowRequest {
  Op op;
  DType dtype;
  std::int64_t head_dim;  // the larger of D and Dv; 0 = the operation has none
  const ExecOptions& exec;
  std::int64_t head_dim_v = 0;  // Dv; head_dim_qk is D. Only CUDA rows look at them
  std::int64_t head_dim_qk = 0;
  CudaUse cuda_use = CudaUse::kAny;
  const ForwardProblem* forward = nullptr;    // of a forward pass
  const BackwardProblem* backward = nullptr;  // of a backward pass
  const DecodeProblem* decode = nullptr;
  const QuantizeKvProblem* quantize_kv = nullptr;
  const tune::TunedRow* tuned = nullptr;  // wins over ranks where its row fits
};

// Fills plan->row and plan->is_slower_substitute. rejections (may be null) gets one entry for every
// other row of the operation that runs on the tensors' device, in registry order.
Status ChooseRow(const RowRequest& request, const DeviceFacts& facts, Plan* plan,
                 std::vector<Rejection>* rejections);

// Every row that fits, that of the highest rank first, whichever kernel is forced.
std::vector<const KernelRow*> RowsThatFit(const RowRequest& request, const DeviceFacts& facts);

// "forward on backend cpu, f32, head dim 64".
std::string RequestText(const RowRequest& request);

}  // namespace heed::core

#endif  // HEED_CORE_CHOOSE_ROW_H_
