// Which decode calls clusters of CTAs run, and how many: kernels/decode/cluster.cu.
#ifndef HEED_CUDA_DECODE_CLUSTERS_H_
#define HEED_CUDA_DECODE_CLUSTERS_H_

#include "core/decode_problem.h"
#include "cuda/function_store.h"

namespace heed::cuda {

// How the CTAs of a task are grouped. Larger clusters merge sooner; fewer
// are resident at a time, as groups of multiprocessors have room for whole ones only.
struct Clusters {
  int log2;                   // of the CTAs of one
  std::int64_t max_resident;  // on kMeasuredMultiprocessors
  int ctas_per_sm = 1;
  int num_stages = 0;  // of a ring; 0: as the row has them
};

Clusters ClustersOf(const core::DecodeProblem& problem);

// Clusters of a task: no more than have a block of keys for each of their CTAs.
std::int64_t NumClusters(const core::DecodeProblem& problem, std::int64_t num_multiprocessors);

// Blocks of keys that one cluster keeps to itself.
std::int64_t AloneBlocksOf(const core::DecodeProblem& problem);

// As static text; null when they run the problem, whose rows are to be aligned besides.
const char* WhyNotClusters(const core::DecodeProblem& problem);

// The kernel that appends one token too, beside the one that attends alone.
KernelKey AppendingKeyOf(const KernelKey& attend_key);

}  // namespace heed::cuda

#endif  // HEED_CUDA_DECODE_CLUSTERS_H_
