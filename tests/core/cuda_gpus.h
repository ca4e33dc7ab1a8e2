// Hand-made GPUs and CUDA problems for tests of the planner: no driver, no device.
#ifndef HEED_TESTS_CORE_CUDA_GPUS_H_
#define HEED_TESTS_CORE_CUDA_GPUS_H_

#include "core/plan.h"
#include "cuda/arch_limits.h"
#include "cuda/backend.h"
#include "problems.h"

namespace heed::test {

// compute_capability: 90 = sm_90.
inline core::DeviceFacts Gpu(int compute_capability, int num_multiprocessors) {
  core::DeviceFacts facts;
  facts.cuda.why_unavailable.clear();
  facts.cuda.compute_capability = compute_capability;
  facts.cuda.num_multiprocessors = num_multiprocessors;
  facts.cuda.max_shared_bytes = static_cast<std::size_t>(cuda::MaxSharedBytes(compute_capability));
  facts.cuda.planner = cuda::Planner();
  return facts;
}

inline core::DeviceFacts Turing() { return Gpu(75, 40); }         // T4, 64 KiB
inline core::DeviceFacts AmpereServer() { return Gpu(80, 108); }  // A100, 163 KiB
inline core::DeviceFacts AmpereDesk() { return Gpu(86, 82); }     // RTX 3090, 99 KiB
inline core::DeviceFacts Hopper() { return Gpu(90, 132); }        // H100, 227 KiB
inline core::DeviceFacts BlackwellDesk() { return Gpu(120, 170); }

// Dense, B = 2, Hq = 16, Hkv = 4, Sq = Skv = `rows`, D = Dv = `head_dim`, aligned, with an fp32
// lse.
inline core::ForwardProblem CudaProblem(core::DType dtype, std::int64_t head_dim,
                                        std::int64_t rows) {
  core::ForwardProblem problem = DenseProblem(dtype);
  problem.shape.num_q_heads = 16;
  problem.shape.num_kv_heads = 4;
  problem.shape.max_q_len = problem.shape.max_kv_len = rows;
  problem.shape.total_q_rows = problem.shape.total_kv_rows = 2 * rows;
  problem.shape.head_dim = problem.shape.head_dim_v = head_dim;
  for (core::RowsView* view : {&problem.q, &problem.k, &problem.v, &problem.o}) {
    const bool is_q_like = view == &problem.q || view == &problem.o;
    view->head_stride_elems = head_dim;
    view->row_stride_elems = head_dim * (is_q_like ? 16 : 4);
    view->batch_stride_elems = view->row_stride_elems * rows;
  }
  problem.lse.dtype = core::DType::kF32;
  problem.exec.backend = HEED_BACKEND_CUDA;
  problem.exec.device = {HEED_DEVICE_CUDA, 0};
  return problem;
}

inline core::BackwardProblem CudaBackward(core::DType dtype, std::int64_t head_dim,
                                          std::int64_t rows) {
  core::BackwardProblem problem;
  problem.forward = CudaProblem(dtype, head_dim, rows);
  problem.d_o = problem.dq = problem.forward.q;
  problem.dk = problem.dv = problem.forward.k;
  return problem;
}

}  // namespace heed::test

#endif  // HEED_TESTS_CORE_CUDA_GPUS_H_
