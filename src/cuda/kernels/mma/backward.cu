// dK, dV and the sums of dQ (and of d_bias) for fp16, bf16 and fp32 (sm_80 on), after
// heed_backward_pre and before heed_backward_post on the same stream. Grid: BackwardGrid(...) CTAs,
// decoded in backward_task.cuh; see backward_shape.h for the launch. Shapes: q, d_o [batch, row,
// Hq, D or Dv]; k, v, dk, dv [batch, row, Hkv, D or Dv].
#include "heed_traits.h"
//
#include "cuda/kernels/mma/backward_main.cuh"

namespace heed::cuda {

extern "C" __global__ void __launch_bounds__(BackwardConfig<Traits>::kThreads)
    heed_backward(const __grid_constant__ BackwardArgs args) {
  extern __shared__ __align__(1024) u8 shared[];
  const BackwardTask task = BackwardTaskOf<Traits>(args, blockIdx.x);
  const Sequence sequence = SequenceAt<Traits>(args.problem.lengths, task.batch);
  if (task.kv_tile * i64{Traits::kTileKv} >= sequence.kv_len) return;
  BackwardCta<Traits>(args, task, sequence, ptx::SharedAddress(shared)).Run();
}

}  // namespace heed::cuda
