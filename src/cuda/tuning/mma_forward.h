// Tiles of the mma forward kernel (kernels/mma/forward.cu), chosen by measurement where a card was
// at hand. A row serves head dims up to its own, D and Dv alike; take the first that fits.
//
// Measured: NVIDIA H200, driver 580, 2026-11-28, bf16 (latency row fp16), 16384 tokens in all,
// hidden size 2048, median of 5 interleaved rounds of triton.testing.do_bench; "x fa2" and "x
// efficient" are ratios to that PyTorch 2.11 SDPA backend in the same run.
// docs/kernels/forward-mma.md has the runs. "Not timed": no card of the class was at hand; the tile
// fits its shared memory and registers.
#ifndef HEED_CUDA_TUNING_MMA_FORWARD_H_
#define HEED_CUDA_TUNING_MMA_FORWARD_H_

#include "cuda/kernels/mma/forward_shape.h"

namespace heed::cuda::tuning {

// Shared memory a CTA may have.
enum class SharedClass {
  k64KB,  // sm_75
  k99KB,  // sm_86, sm_89, sm_120
  k163KB  // sm_80, sm_87 and more: sm_90
};

constexpr int SharedLimitBytes(SharedClass shared_class) {
  switch (shared_class) {
    case SharedClass::k64KB:
      return 64 * 1024;
    case SharedClass::k99KB:
      return 99 * 1024;
    case SharedClass::k163KB:
      return 163 * 1024;
  }
  return 0;
}

enum class ForwardUse {
  kAny,
  kFull,      // every row sees most keys
  kCausal,    // a right bound
  kFewTasks,  // q tiles of the kAny row would leave most of the GPU idle
};

struct MmaForwardRow {
  SharedClass shared_class;
  int element_bytes;  // 2: fp16 and bf16 (sm_75: fp16), 4: fp32
  int max_head_dim;
  ForwardUse use;
  int tile_q;
  int tile_kv;
  int num_warps;
  int kv_groups;
  int num_stages;
  ForwardVariant variant;
};

inline constexpr MmaForwardRow kMmaForwardRows[] = {
    // 163 KB and more, 16-bit.
    // full 1.18, 1.19, 1.19, causal 1.23, 1.25, 1.24 x fa2 at 1k, 4k, 16k. Next best, the same tile
    // without overlap: 1.09 .. 1.15, 1.16 .. 1.19.
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 2,
     .max_head_dim = 64,
     .use = ForwardUse::kAny,
     .tile_q = 128,
     .tile_kv = 128,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 2,
     .variant = {.min_ctas = 2, .q_in_registers = 1, .is_overlapped = 1, .step_keys = 32}},
    // B=1 H=8 S=512 D=64 by graph replay: full 6.5 us (cuDNN 9.0, fa2 10.3), causal 6.7 us (9.4,
    // 10.5). Next best: 4 warps instead of 8, 7.0 us.
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 2,
     .max_head_dim = 64,
     .use = ForwardUse::kFewTasks,
     .tile_q = 32,
     .tile_kv = 256,
     .num_warps = 8,
     .kv_groups = 4,
     .num_stages = 2,
     .variant = {}},
    // full 1.07, 1.11, 1.15, causal 1.07, 1.16, 1.08 x fa2 at 1k, 4k, 16k, timed without
    // keeps_scores, when 28 bytes were spilled.
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 2,
     .max_head_dim = 96,
     .use = ForwardUse::kAny,
     .tile_q = 128,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 2,
     .variant = {.min_ctas = 2, .keeps_scores = 1}},
    // full 1.14, 1.18, 1.16 x fa2 at 1k, 4k, 16k (the kCausal row: 1.10, 1.15, 1.15).
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 2,
     .max_head_dim = 128,
     .use = ForwardUse::kFull,
     .tile_q = 128,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 2,
     .variant = {.min_ctas = 2, .is_overlapped = 1, .step_keys = 32}},
    // causal 1.22, 1.25, 1.29 x fa2 at 1k, 4k, 16k (the kFull row: 1.26, 1.24, 1.24).
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 2,
     .max_head_dim = 128,
     .use = ForwardUse::kCausal,
     .tile_q = 128,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.min_ctas = 2}},
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 2,
     .max_head_dim = 128,
     .use = ForwardUse::kAny,
     .tile_q = 128,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.min_ctas = 2}},
    // Without keeps_scores: full 0.96, 0.95, 0.94, causal 1.10, 1.11, 1.11 x fa2 at 1k, 4k, 16k.
    // With
    // it the build has no spills; that is not timed yet.
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 2,
     .max_head_dim = 192,
     .use = ForwardUse::kAny,
     .tile_q = 64,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.min_ctas = 2, .keeps_scores = 1}},
    // full 1.02, 1.05, 1.03, causal 1.03, 1.10, 1.12 x fa2 at 1k, 4k, 16k, timed with K's registers
    // in
    // an order that costs two moves per mma. Without keeps_scores (24 to 68 bytes spilled in the
    // loop), right order: full 0.96, 0.94, 0.98, causal 1.05, 1.11, 1.14.
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 2,
     .max_head_dim = 256,
     .use = ForwardUse::kAny,
     .tile_q = 64,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.min_ctas = 2, .keeps_scores = 1}},
    // Checked, not timed: no backend of PyTorch to compare with.
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 2,
     .max_head_dim = 576,
     .use = ForwardUse::kAny,
     .tile_q = 64,
     .tile_kv = 32,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.column_passes = 2}},

    // 163 KB and more, fp32.
    // full 2.06, 2.16, causal 2.04, 2.19 x efficient at 1k, 4k (70 .. 74 TFLOP/s).
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 4,
     .max_head_dim = 64,
     .use = ForwardUse::kAny,
     .tile_q = 128,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.min_ctas = 2}},
    // full 1.65, 1.63, causal 1.55, 1.59 x efficient at 1k, 4k. Next best, 16 rows a warp: 1.38
    // .. 1.46.
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 4,
     .max_head_dim = 128,
     .use = ForwardUse::kAny,
     .tile_q = 128,
     .tile_kv = 32,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.min_ctas = 2}},
    // Checked, not timed.
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 4,
     .max_head_dim = 256,
     .use = ForwardUse::kAny,
     .tile_q = 64,
     .tile_kv = 32,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {}},
    // Not timed.
    {.shared_class = SharedClass::k163KB,
     .element_bytes = 4,
     .max_head_dim = 576,
     .use = ForwardUse::kAny,
     .tile_q = 32,
     .tile_kv = 16,
     .num_warps = 2,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.column_passes = 3}},

    // 99 KB, 16-bit: two CTAs an SM up to 128.
    // On the H200: full 1.07 .. 1.19, causal 1.17 .. 1.22 x fa2.
    {.shared_class = SharedClass::k99KB,
     .element_bytes = 2,
     .max_head_dim = 64,
     .use = ForwardUse::kAny,
     .tile_q = 128,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 2,
     .variant = {.min_ctas = 2, .q_in_registers = 1}},
    // Not timed.
    {.shared_class = SharedClass::k99KB,
     .element_bytes = 2,
     .max_head_dim = 64,
     .use = ForwardUse::kFewTasks,
     .tile_q = 32,
     .tile_kv = 128,
     .num_warps = 8,
     .kv_groups = 4,
     .num_stages = 2,
     .variant = {}},
    // On the H200: full 0.96 .. 1.11, causal 0.95 .. 1.03 x fa2, timed without keeps_scores.
    {.shared_class = SharedClass::k99KB,
     .element_bytes = 2,
     .max_head_dim = 96,
     .use = ForwardUse::kAny,
     .tile_q = 128,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.min_ctas = 2, .keeps_scores = 1}},
    // On the H200: full 1.02 .. 1.09, causal 1.14 .. 1.21 x fa2.
    {.shared_class = SharedClass::k99KB,
     .element_bytes = 2,
     .max_head_dim = 128,
     .use = ForwardUse::kAny,
     .tile_q = 128,
     .tile_kv = 32,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.min_ctas = 2}},
    // Not timed with one CTA an SM, for this row and the rest of the class.
    {.shared_class = SharedClass::k99KB,
     .element_bytes = 2,
     .max_head_dim = 256,
     .use = ForwardUse::kAny,
     .tile_q = 64,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.keeps_scores = 1}},
    {.shared_class = SharedClass::k99KB,
     .element_bytes = 2,
     .max_head_dim = 576,
     .use = ForwardUse::kAny,
     .tile_q = 32,
     .tile_kv = 32,
     .num_warps = 2,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.column_passes = 3}},

    // 99 KB, fp32.
    {.shared_class = SharedClass::k99KB,
     .element_bytes = 4,
     .max_head_dim = 64,
     .use = ForwardUse::kAny,
     .tile_q = 128,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {}},
    {.shared_class = SharedClass::k99KB,
     .element_bytes = 4,
     .max_head_dim = 128,
     .use = ForwardUse::kAny,
     .tile_q = 128,
     .tile_kv = 16,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {}},
    {.shared_class = SharedClass::k99KB,
     .element_bytes = 4,
     .max_head_dim = 256,
     .use = ForwardUse::kAny,
     .tile_q = 32,
     .tile_kv = 16,
     .num_warps = 2,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {}},
    {.shared_class = SharedClass::k99KB,
     .element_bytes = 4,
     .max_head_dim = 576,
     .use = ForwardUse::kAny,
     .tile_q = 16,
     .tile_kv = 16,
     .num_warps = 1,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.column_passes = 3}},

    // sm_75, fp16: not timed.
    {.shared_class = SharedClass::k64KB,
     .element_bytes = 2,
     .max_head_dim = 64,
     .use = ForwardUse::kAny,
     .tile_q = 64,
     .tile_kv = 64,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.min_ctas = 2}},
    {.shared_class = SharedClass::k64KB,
     .element_bytes = 2,
     .max_head_dim = 96,
     .use = ForwardUse::kAny,
     .tile_q = 64,
     .tile_kv = 32,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.min_ctas = 2}},
    {.shared_class = SharedClass::k64KB,
     .element_bytes = 2,
     .max_head_dim = 192,
     .use = ForwardUse::kAny,
     .tile_q = 64,
     .tile_kv = 32,
     .num_warps = 4,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {}},
    {.shared_class = SharedClass::k64KB,
     .element_bytes = 2,
     .max_head_dim = 256,
     .use = ForwardUse::kAny,
     .tile_q = 32,
     .tile_kv = 32,
     .num_warps = 2,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {}},
    {.shared_class = SharedClass::k64KB,
     .element_bytes = 2,
     .max_head_dim = 576,
     .use = ForwardUse::kAny,
     .tile_q = 32,
     .tile_kv = 16,
     .num_warps = 2,
     .kv_groups = 1,
     .num_stages = 1,
     .variant = {.column_passes = 5}},
};

constexpr ForwardShape ShapeOf(const MmaForwardRow& row) {
  return {row.element_bytes, row.max_head_dim, row.max_head_dim,
          row.tile_q,        row.tile_kv,      row.num_warps,
          row.kv_groups,     row.num_stages,   EncodeForwardVariant(row.variant)};
}

constexpr bool AllRowsFit() {
  for (const MmaForwardRow& row : kMmaForwardRows) {
    if (ForwardSharedBytes(ShapeOf(row)) > SharedLimitBytes(row.shared_class)) return false;
  }
  return true;
}
static_assert(AllRowsFit(), "a row's largest head dim needs more shared memory than its class has");

}  // namespace heed::cuda::tuning

#endif  // HEED_CUDA_TUNING_MMA_FORWARD_H_
