// A checked problem as kernels take it, and what a kernel must be compiled for to run it.
#ifndef HEED_CUDA_PROBLEM_ARGS_H_
#define HEED_CUDA_PROBLEM_ARGS_H_

#include <initializer_list>

#include "core/plan.h"
#include "cuda/kernel_traits.h"
#include "cuda/kernels/common/args.h"

namespace heed::cuda {

// fp32 for everything that is neither fp16 nor bf16.
Element ElementOfDType(core::DType dtype);
// Of bias or d_bias.
BiasElement BiasElementOf(const core::ScoreView& bias);

IndexArg IndexArgOf(const core::IndexView& view);  // data null = absent
RowsArg RowsArgOf(const core::RowsView& view);
LseArg LseArgOf(const core::LseView& view);
ScoreArg ScoreArgOf(const core::ScoreView& view);
HeadArg HeadArgOf(const core::HeadView& view);
ProblemArg ProblemArgOf(const core::ForwardProblem& problem, ErrorCounters* errors);

// The numbers that decide a tile's size; no features.
KernelTraits TileTraitsOf(const core::KernelRow& row, std::int64_t head_dim,
                          std::int64_t head_dim_v);
// Tile numbers from the row, features from the problem; head dims padded as kernels want them.
KernelTraits TraitsOf(const core::KernelRow& row, const core::ForwardProblem& problem);

// Whether every access to the rows of these operands can be 16 bytes wide.
RowAccess AccessOf(std::initializer_list<const core::RowsView*> operands, std::int64_t head_dim,
                   std::int64_t head_dim_v);

// Smallest multiple of 16 that is not below.
int PadHeadDim(std::int64_t head_dim);

}  // namespace heed::cuda

#endif  // HEED_CUDA_PROBLEM_ARGS_H_
