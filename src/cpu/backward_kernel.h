// The contract between the portable driver of the backward pass and its kernels, which are compiled
// once per instruction set: plain data and function pointers, as in forward_kernel.h, whose words
// (tile, block, lane) are used here too. Arithmetic is fp32 whatever the element type.
//
// Two layouts of a tile's rows:
//   columns  [elem][tile_rows], a lane per row: right operand of K Q^T and V dO^T
//   panels   [panel][row][tile_rows], a lane per element, tile_rows elements a panel: right operand
//            of P^T dO and dS^T Q. The accumulators of dK and dV are [panel][key][tile_rows].
#ifndef HEED_CPU_BACKWARD_KERNEL_H_
#define HEED_CPU_BACKWARD_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/registry.h"
#include "cpu/forward_kernel.h"

namespace heed::cpu {

// num_rows rows of num_elems contiguous elements to fp32; a null row becomes zeros.
struct LoadRowsArgs {
  const void* const* rows;
  std::int64_t num_rows;
  std::int64_t num_elems;
  float* destination;
  std::int64_t capacity_rows;  // of a panel, or of columns; rows past num_rows are zeroed
};

// out[row][lane] = sum over elem of left[row][elem] * columns[elem][lane].
struct TimesColumnsArgs {
  const float* left;  // [num_rows], stride_elems apart
  std::int64_t stride_elems;
  std::int64_t num_rows;
  const float* columns;
  std::int64_t num_elems;
  float* out;  // [num_rows][tile_rows]
};

// From raw products to P and dS, for one tile and one block.
struct GradientArgs {
  float* products;    // [num_keys][tile_rows]: q . k in, P after dropout out
  float* d_products;  // [num_keys][tile_rows]: dO . v in, the gradient of scale * q . k out
  std::int64_t num_keys;
  const float* begin;  // [tile_rows], keys a lane may see, relative to the block
  const float* end;
  const float* lse;    // [tile_rows], natural log; +inf where the softmax is empty
  const float* delta;  // [tile_rows], dO . o - d_lse
  float scale;
  float softcap;          // 0 = off
  const float* additive;  // [num_keys][tile_rows], kMaskedOut hides; null = none
  const float* keep;      // [num_keys][tile_rows] of 0 or 1; null = no dropout
  float keep_scale;
  float* d_scores;        // out [num_keys][tile_rows], gradient of the bias; null = not wanted
  std::uint8_t* is_live;  // out [num_keys]: some lane sees the key
};

// columns_out[elem][lane] += sum over key of keys[key][elem] * right[key][lane].
struct AddColumnsArgs {
  const float* keys;  // [num_keys], stride_elems apart
  std::int64_t stride_elems;
  std::int64_t num_keys;
  const float* right;  // [num_keys][tile_rows]
  std::int64_t num_elems;
  float* columns_out;
};

// panels_out[key][elem] += sum over row of left[key][row] * panels[row][elem].
struct AddPanelsArgs {
  const float* left;  // [num_keys][tile_rows]
  std::int64_t num_keys;
  std::int64_t num_rows;  // of the tile, those that count
  const float* panels;    // tile_rows rows a panel
  std::int64_t num_elems;
  float* panels_out;  // kBlockKeys keys a panel
};

struct BackwardKernel {
  int tile_rows;
  void (*load_columns)(const LoadRowsArgs& args);
  void (*load_panels)(const LoadRowsArgs& args);
  void (*load_rows)(const LoadRowsArgs& args);  // [row][num_elems]
  void (*times_columns)(const TimesColumnsArgs& args);
  void (*gradients)(const GradientArgs& args);
  void (*add_columns)(const AddColumnsArgs& args);
  void (*add_panels)(const AddPanelsArgs& args);
};

struct BackwardKernelSet {
  BackwardKernel f32, f16, bf16;
};

// Null when the target is not part of this build or has no kernel for dtype.
const BackwardKernel* FindBackwardKernel(core::CpuTarget target, core::DType dtype);

}  // namespace heed::cpu

#endif  // HEED_CPU_BACKWARD_KERNEL_H_
