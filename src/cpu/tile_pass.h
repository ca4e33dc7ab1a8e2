// The flash-attention loop over one range of query tiles.
#ifndef HEED_CPU_TILE_PASS_H_
#define HEED_CPU_TILE_PASS_H_

#include "core/problem.h"
#include "cpu/forward_kernel.h"
#include "cpu/kv_heads.h"
#include "cpu/schedule.h"
#include "cpu/scratch.h"

namespace heed::cpu {

// The softmax scale as the kernels want it: the sign goes into q, which stays exact, the magnitude
// into the exponent of the softmax. A scale of 0 becomes q = 0 and a factor of 1.
struct ScaleParts {
  float sign = 1.0f;
  float magnitude = 1.0f;       // natural-log units
  float magnitude_log2 = 1.0f;  // times log2(e)
};

ScaleParts SplitScale(double scale);

// What every range of one call shares.
struct ForwardContext {
  const core::ForwardProblem& problem;
  const ForwardKernel& kernel;
  ScaleParts scale;
  KvHeads* heads = nullptr;  // null: ranges pack for themselves
};

// Writes o and lse of the range's rows.
void RunTileRange(const ForwardContext& context, const TileRange& range,
                  const WorkerScratch& scratch);

}  // namespace heed::cpu

#endif  // HEED_CPU_TILE_PASS_H_
