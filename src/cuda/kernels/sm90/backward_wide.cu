// dQ, dK and dV of wide heads on Hopper, after heed_backward_pre on the same stream.
// docs/kernels/backward-sm90.md says why there are two kinds of tasks.
//
// The first CTAs have 128 queries each and compute dQ of them, the others 64 keys each and compute
// dK and dV of those. Warpgroup 0 loads tiles by TMA, the other two compute; they hand over by
// barriers in shared memory only.
//
// Grid: num_q_tiles * num_q_pairs + num_kv_tiles * num_pairs. Block: kSm90WideThreads. Dynamic
// shared memory: Sm90WideMemoryOf(...).total_bytes.
#include "heed_traits.h"
//
#include "cuda/kernels/ptx/chain.cuh"
#include "cuda/kernels/sm90/backward_wide_config.cuh"
#include "cuda/kernels/sm90/backward_wide_keys.cuh"
#include "cuda/kernels/sm90/backward_wide_producer.cuh"
#include "cuda/kernels/sm90/backward_wide_queries.cuh"

namespace heed::cuda {

using Config = Sm90WideConfig<Traits>;

extern "C" __global__ void __launch_bounds__(kSm90WideThreads, 1)
    heed_backward_wide_sm90(const __grid_constant__ Sm90WideBackwardArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const u32 base = (ptx::SharedAddress(dynamic_shared) + 1023u) & ~1023u;
  const KeyTaskMemory<Config> for_keys{base};
  const QueryTaskMemory<Config> for_queries{base};
  const u32 num_query_tasks = args.num_q_tiles * args.num_q_pairs;
  const bool has_queries = blockIdx.x < num_query_tasks;
  ptx::LetNextKernelStart();
  if (threadIdx.x == 0) {
    if (has_queries) {
      for_queries.Initialise();
    } else {
      for_keys.Initialise();
    }
  }
  __syncthreads();
  ptx::WaitForPreviousKernel();
  const int warpgroup = static_cast<int>(__shfl_sync(~0u, threadIdx.x / 128, 0));
  if (warpgroup == 0) {
    ptx::GiveBackRegisters<Config::kProducerRegisters>();
    if (threadIdx.x % 32 != 0) return;
    if (has_queries) {
      const QueryTask task = QueryTaskOf<Config>(args, blockIdx.x);
      if (threadIdx.x == 0) {
        LoadQueryTask<Config, KeySide::kValues>(args.common, for_queries, task);
      } else if (threadIdx.x == 32) {
        LoadQueryTask<Config, KeySide::kKeys>(args.common, for_queries, task);
      }
    } else {
      const KeyTask task = KeyTaskOf<Config>(args, blockIdx.x - num_query_tasks);
      if (task.num_steps == 0) return;
      if (threadIdx.x == 0) {
        LoadKeyTask<Config, KeySide::kValues>(args.common, for_keys, task);
      } else if (threadIdx.x == 32) {
        LoadKeyTask<Config, KeySide::kKeys>(args.common, for_keys, task);
      }
    }
    return;
  }
  ptx::TakeRegisters<Config::kConsumerRegisters>();
  if (has_queries) {
    const QueryTask task = QueryTaskOf<Config>(args, blockIdx.x);
    WideQueryConsumer<Config>(args, for_queries, task, warpgroup - 1).Run();
  } else {
    const KeyTask task = KeyTaskOf<Config>(args, blockIdx.x - num_query_tasks);
    if (warpgroup == 1) {
      WideKeyConsumer<Config, KeySide::kValues>(args.common, for_keys, task).Run();
    } else {
      WideKeyConsumer<Config, KeySide::kKeys>(args.common, for_keys, task).Run();
    }
  }
}

}  // namespace heed::cuda
