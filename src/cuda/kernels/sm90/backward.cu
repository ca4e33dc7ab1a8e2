// dK, dV and the sums of dQ on Hopper, after heed_backward_pre and before heed_backward_post on the
// same stream. docs/kernels/backward-sm90.md draws it.
//
// Warpgroup 0 loads tiles by TMA and computes dQ; the other two keep dK and dV of 64 keys each.
// They hand over by barriers in shared memory only.
//
// Grid: num_kv_tiles * num_pairs. Block: kSm90BackwardThreads. Dynamic shared memory:
// Sm90BackwardSharedBytes.
#include "heed_traits.h"
//
#include "cuda/kernels/ptx/chain.cuh"
#include "cuda/kernels/sm90/backward_config.cuh"
#include "cuda/kernels/sm90/backward_consumer.cuh"
#include "cuda/kernels/sm90/backward_dq.cuh"

namespace heed::cuda {

using Config = Sm90BackwardConfig<Traits>;

extern "C" __global__ void __launch_bounds__(kSm90BackwardThreads, 1)
    heed_backward_sm90(const __grid_constant__ Sm90BackwardArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const BackwardMemory<Config> shared{(ptx::SharedAddress(dynamic_shared) + 1023u) & ~1023u};
  ptx::LetNextKernelStart();
  if (threadIdx.x == 0) shared.Initialise();
  __syncthreads();
  ptx::WaitForPreviousKernel();
  const int warpgroup = static_cast<int>(__shfl_sync(~0u, threadIdx.x / 128, 0));
  if (warpgroup == 0) {
    ptx::GiveBackRegisters<Config::kDqRegisters>();
    const BackwardTile tile = BackwardTileOf<Config>(args, blockIdx.x);
    BackwardDq<Config>(args, shared, tile).Run();
    return;
  }
  ptx::TakeRegisters<Config::kConsumerRegisters>();
  const BackwardTile tile = BackwardTileOf<Config>(args, blockIdx.x);
  BackwardConsumer<Config>(args, shared, tile, warpgroup - 1).Run();
}

}  // namespace heed::cuda
