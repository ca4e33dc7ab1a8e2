// A validated attention call. Built once by core::BuildForwardProblem / BuildBackwardProblem;
// kernels and the oracle read it and check nothing again.
#ifndef HEED_CORE_PROBLEM_H_
#define HEED_CORE_PROBLEM_H_

#include <array>
#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "core/status.h"
#include "device/mask.h"
#include "heed/heed.h"

namespace heed::core {

// A q-, k-, v- or o-like operand, canonical axes [batch, row, head, dim]; the dim axis is
// contiguous. Packed operands have batch_stride 0 and rows counted over the whole buffer; paged
// pools use the batch axis for the page and the row axis for the slot. data may be null when only
// planning.
struct RowsView {
  void* data = nullptr;  // byte_offset already applied
  DType dtype = DType::kInvalid;
  std::int64_t batch_stride_elems = 0;
  std::int64_t row_stride_elems = 0;
  std::int64_t head_stride_elems = 0;

  bool present() const { return dtype != DType::kInvalid; }
  std::int64_t OffsetElems(std::int64_t batch, std::int64_t row, std::int64_t head) const {
    return batch * batch_stride_elems + row * row_stride_elems + head * head_stride_elems;
  }
};

// lse or d_lse, fp32 (fp64 for a float64 oracle call), axes [batch, head, row]; packed: batch
// stride 0.
struct LseView {
  void* data = nullptr;
  DType dtype = DType::kInvalid;
  std::int64_t batch_stride_elems = 0;
  std::int64_t head_stride_elems = 0;
  std::int64_t row_stride_elems = 0;

  bool present() const { return dtype != DType::kInvalid; }
  std::int64_t OffsetElems(std::int64_t batch, std::int64_t head, std::int64_t row) const {
    return batch * batch_stride_elems + head * head_stride_elems + row * row_stride_elems;
  }
};

// bias, bool mask or d_bias, canonical axes [batch, q head, query, key]; size-1 axes have stride 0.
struct ScoreView {
  void* data = nullptr;
  DType dtype = DType::kInvalid;
  std::array<std::int64_t, 4> stride_elems = {0, 0, 0, 0};

  bool present() const { return dtype != DType::kInvalid; }
  std::int64_t OffsetElems(std::int64_t batch, std::int64_t head, std::int64_t query,
                           std::int64_t key) const {
    return batch * stride_elems[0] + head * stride_elems[1] + query * stride_elems[2] +
           key * stride_elems[3];
  }
};

// Per-head fp32 vectors: ALiBi slopes [batch, head], sinks and d_sinks [head] (batch stride 0).
struct HeadView {
  float* data = nullptr;
  std::int64_t batch_stride_elems = 0;
  std::int64_t head_stride_elems = 0;
  bool is_present = false;

  bool present() const { return is_present; }
  float At(std::int64_t batch, std::int64_t head) const {
    return data[batch * batch_stride_elems + head * head_stride_elems];
  }
};

// int32 lengths, offsets or indices; data may live on the device.
struct IndexView {
  const std::int32_t* data = nullptr;
  std::int64_t stride_elems = 1;
  bool is_present = false;

  bool present() const { return is_present; }
  std::int32_t At(std::int64_t index) const { return data[index * stride_elems]; }
};

struct BlockTableView {
  const std::int32_t* data = nullptr;
  std::int64_t batch_stride_elems = 0;
  std::int64_t page_stride_elems = 1;
  std::int64_t page_slots = 0;  // tokens per page
  std::int64_t num_pages = 0;   // pages in the pool
  std::int64_t max_pages = 0;   // columns of the table
  bool is_present = false;

  bool present() const { return is_present; }
  std::int32_t At(std::int64_t batch, std::int64_t page_index) const {
    return data[batch * batch_stride_elems + page_index * page_stride_elems];
  }
};

// Scales of int8 rows, fp32 [batch, head, n].
struct ScaleView {
  const float* data = nullptr;
  std::int64_t batch_stride_elems = 0;
  std::int64_t head_stride_elems = 0;
  std::int64_t stride_elems = 0;
  std::int64_t block_rows = 0;  // row i uses scale i / block_rows; 0: the only one, or per channel
  bool is_present = false;

  bool present() const { return is_present; }
  float At(std::int64_t batch, std::int64_t head, std::int64_t index) const {
    return data[batch * batch_stride_elems + head * head_stride_elems + index * stride_elems];
  }
  // 1 when absent. Requires: not the per-channel scales of v.
  float OfRow(std::int64_t batch, std::int64_t head, std::int64_t row) const {
    if (!is_present) return 1.0f;
    return At(batch, head, block_rows == 0 ? 0 : row / block_rows);
  }
};

// Of calls whose q, k and v are int8.
struct Int8Rule {
  ScaleView q, k, v;
  heed_int8_softmax_t softmax = HEED_INT8_SOFTMAX_FLOAT;
  heed_int8_values_t values = HEED_INT8_VALUES_F32;

  bool has_channel_scales() const { return v.present() && v.block_rows == 0; }
};

struct DropoutRule {
  // Keep an element when its 16-bit random number is >= drop_threshold: p = drop_threshold / 65536.
  std::uint32_t drop_threshold = 0;  // 0 = no dropout, at most 65535
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  const std::uint64_t* device_rng = nullptr;  // {seed, offset} in device memory, GPU only
  bool active() const { return drop_threshold != 0; }
};

struct ScoreRule {
  double scale = 1.0;         // already resolved from 1 / sqrt(D)
  double softcap = 0.0;       // 0 = off
  device::WindowRule window;  // causal folded in as right = min(right, 0)
  HeadView alibi_slopes;
  ScoreView bias;
  ScoreView mask;
  HeadView sinks;
  DropoutRule dropout;
};

enum class Packing : std::uint8_t { kDense, kPacked };

struct Shape {
  std::int64_t batch = 0;
  std::int64_t num_q_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t group = 1;      // num_q_heads / num_kv_heads; 1 when there are no heads
  std::int64_t max_q_len = 0;  // dense: Sq; packed: longest sequence (or the caller's bound)
  std::int64_t max_kv_len = 0;
  std::int64_t total_q_rows = 0;   // rows of q: dense B * Sq, packed total_q
  std::int64_t total_kv_rows = 0;  // rows of k: dense B * Skv, packed total_kv, paged 0
  std::int64_t head_dim = 0;
  std::int64_t head_dim_v = 0;
};

struct ExecOptions {
  heed_backend_t backend = HEED_BACKEND_AUTO;  // resolved, never AUTO, in a built problem
  heed_device_t device = {HEED_DEVICE_CPU, 0};
  bool deterministic = false;
  bool fixed_split = false;
  bool forbid_slower = false;
  const char* forced_kernel = nullptr;  // from the call or HEED_FORCE_KERNEL
  void* stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  const heed_allocator_t* allocator = nullptr;
  std::int32_t num_threads = 0;
  heed_parallel_for_t parallel_for = nullptr;
  void* parallel_for_context = nullptr;
};

// One sequence of the batch, in host memory terms.
struct Sequence {
  std::int64_t q_batch = 0;   // index on the batch axis of q, o: 0 when packed
  std::int64_t q_begin = 0;   // first row on the row axis
  std::int64_t q_slots = 0;   // rows that belong to the sequence (o is written for all of them)
  std::int64_t q_len = 0;     // rows that take part (seqused_q), <= q_slots
  std::int64_t kv_batch = 0;  // index on the batch axis of k, v: 0 when packed; unused when paged
  std::int64_t kv_begin = 0;
  std::int64_t kv_slots = 0;
  std::int64_t kv_len = 0;
};

struct ForwardProblem {
  Shape shape;
  RowsView q, k, v, o;
  LseView lse;
  ScoreRule score;
  Packing q_packing = Packing::kDense;
  Packing kv_packing = Packing::kDense;
  IndexView cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv;
  BlockTableView block_table;
  Int8Rule int8;
  ExecOptions exec;

  DType dtype() const { return q.dtype; }
  // Sequences may differ in length.
  bool has_lengths() const {
    return cu_seqlens_q.present() || cu_seqlens_kv.present() || seqused_q.present() ||
           seqused_kv.present();
  }
  // Host-readable lengths only (CPU, reference).
  Sequence SequenceAt(std::int64_t batch) const;
  // Element offset of key (or value) row `token` of a sequence, head kv_head; follows the block
  // table.
  std::int64_t KvOffsetElems(const RowsView& kv, const Sequence& sequence, std::int64_t batch,
                             std::int64_t token, std::int64_t kv_head) const;
};

struct BackwardProblem {
  ForwardProblem forward;  // o and lse are inputs; forward.exec is this call's exec
  RowsView d_o, dq, dk, dv;
  LseView d_lse;
  ScoreView d_bias;
  std::array<std::int64_t, 4> d_bias_shape = {1, 1, 1, 1};
  HeadView d_sinks;
};

struct CombineProblem {
  std::int64_t num_parts = 0;
  std::int64_t batch = 0;
  std::int64_t q_len = 0;
  std::int64_t num_q_heads = 0;
  std::int64_t head_dim_v = 0;
  RowsView o_partial;  // one part; parts are o_part_stride_elems apart
  std::int64_t o_part_stride_elems = 0;
  LseView lse_partial;
  std::int64_t lse_part_stride_elems = 0;
  HeadView sinks;
  RowsView o;
  LseView lse;
  ExecOptions exec;
};

struct DropoutMaskProblem {
  std::int64_t batch = 0, num_q_heads = 0, q_len = 0, kv_len = 0;
  ScoreView mask;
  DropoutRule dropout;
  ExecOptions exec;
};

// kPlan accepts null data pointers; kRun does not (empty tensors excepted).
enum class Purpose : std::uint8_t { kPlan, kRun };

// Check every rule of the contract and fill *problem. Nothing is read through data pointers except
// host length arrays.
Status BuildForwardProblem(const heed_forward_args_t* args, Purpose purpose,
                           ForwardProblem* problem);
Status BuildBackwardProblem(const heed_backward_args_t* args, Purpose purpose,
                            BackwardProblem* problem);
Status BuildCombineProblem(const heed_combine_args_t* args, Purpose purpose,
                           CombineProblem* problem);
Status BuildDropoutMaskProblem(const heed_dropout_mask_args_t* args, Purpose purpose,
                               DropoutMaskProblem* problem);

}  // namespace heed::core

#endif  // HEED_CORE_PROBLEM_H_
