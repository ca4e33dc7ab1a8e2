// O and lse on Hopper: persistent CTAs that each take q tiles of (batch, query head) pairs.
//
// Warpgroup 0 moves data: one thread loads tiles of Q, K and V by TMA, a warp for each consumer
// stores its O, and one loads bias or mask. The other warpgroups compute, each 64 rows of every q
// tile, by wgmma. They hand over by barriers in shared memory only. docs/kernels/forward-sm90.md
// draws it.
//
// Grid: at most one CTA per multiprocessor. Block: Sm90ForwardThreads. Dynamic shared memory:
// Sm90ForwardSharedBytes.
#include "heed_traits.h"
//
#include "cuda/kernels/sm90/forward_config.cuh"
#include "cuda/kernels/sm90/forward_consumer.cuh"
#include "cuda/kernels/sm90/forward_producer.cuh"
#include "cuda/kernels/sm90/forward_slabs.cuh"

namespace heed::cuda {

using Config = Sm90ForwardConfig<Traits>;

extern "C" __global__ void __launch_bounds__(Config::kNumThreads, 1)
    heed_forward_sm90(const __grid_constant__ Sm90ForwardArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const SharedLayout<Config> shared{(ptx::SharedAddress(dynamic_shared) + 1023u) & ~1023u};
  if (threadIdx.x == 0) shared.Initialise();
  __syncthreads();
  const int warpgroup = static_cast<int>(__shfl_sync(0xFFFFFFFFu, threadIdx.x / 128, 0));
  if (warpgroup == 0) {
    ptx::GiveBackRegisters<Config::kProducerRegisters>();
    const int warp = static_cast<int>(__shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0));
    if (threadIdx.x == 0) {
      Producer<Config>(args, shared).Run();
    } else if (Config::kHasStorers && warp >= 1 && warp <= Config::kConsumers) {
      RunStorer<Config>(args, shared, warp - 1);
    } else if (Config::kHasSlabs && warp == Config::kConsumers + 1) {
      RunSlabs<Config>(args, shared);
    }
    return;
  }
  ptx::TakeRegisters<Config::kConsumerRegisters>();
  Consumer<Config>(args, shared, warpgroup - 1).Run();
}

}  // namespace heed::cuda
