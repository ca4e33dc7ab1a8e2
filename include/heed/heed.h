/* heed: exact attention (FlashAttention) as a C library. This header is the whole public ABI.
 *
 * Symbols used below: B batch, Hq / Hkv query and key-value heads, G = Hq / Hkv, Sq / Skv lengths,
 * D head dim of q and k, Dv head dim of v and o. "fp" means fp32, fp16 or bf16.
 *
 * Conventions shared by every function:
 *  - Returns a heed_status_t; on failure heed_last_error() explains it and no output was written.
 *  - Never prints, aborts or throws.
 *  - Thread-safe: any number of host threads may call at the same time.
 *  - Every argument struct starts with struct_size. Fill structs with their HEED_..._INIT value,
 * which also sets the neutral value of every field; fields may be appended in later versions.
 *  - A NULL pointer field means "absent" unless the field says it is required.
 *  - Every argument that is accepted has effect or is refused.
 *  - fp32 and bf16 numbers below 2^-126 in magnitude (subnormals) count as 0, in inputs, results
 * and between them, except in the reference backend; those of fp16 count in full. The
 * floating-point state of the caller's threads is as before when a call returns.
 */
#ifndef HEED_HEED_H_
#define HEED_HEED_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define HEED_API __attribute__((visibility("default")))
#else
#define HEED_API
#endif

#define HEED_VERSION_MAJOR 0
#define HEED_VERSION_MINOR 1
#define HEED_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ------------------------------------------------------------------------------- */
typedef enum heed_status {
  HEED_OK = 0,
  HEED_INVALID_ARGUMENT = 1, /* no device could run this call */
  HEED_UNSUPPORTED = 2,      /* legal, but no kernel here; the message lists the nearest rows */
  HEED_OUT_OF_MEMORY = 3,
  HEED_DEVICE_ERROR = 4, /* the device or its driver reported an error */
  HEED_UNAVAILABLE = 5,  /* the backend cannot load here; the message says why */
  HEED_INTERNAL = 6      /* a fault of the library: please report it */
} heed_status_t;

/* Text of the last failed call of this thread, "" when there was none. Valid until the thread's
 * next failing call. Form: `k.shape[2] (num_kv_heads) = 3: must divide q.shape[2] = 8`. */
HEED_API const char* heed_last_error(void);

/* Constant name of a status, such as "HEED_INVALID_ARGUMENT". */
HEED_API const char* heed_status_name(heed_status_t status);

/* Library version as "major.minor.patch". */
HEED_API const char* heed_version(void);

/* ---- Tensors ------------------------------------------------------------------------------ */
/* Same values as DLDeviceType. */
typedef enum heed_device_type {
  HEED_DEVICE_CPU = 1,
  HEED_DEVICE_CUDA = 2,
  HEED_DEVICE_CUDA_HOST = 3,
  HEED_DEVICE_CUDA_MANAGED = 13,
  HEED_DEVICE_WEBGPU = 15
} heed_device_type_t;

/* Same layout as DLDevice. */
typedef struct heed_device {
  int32_t device_type; /* a heed_device_type_t */
  int32_t device_id;   /* 0 on the CPU, else not negative */
} heed_device_t;

/* Same values as DLDataTypeCode. */
typedef enum heed_dtype_code {
  HEED_DTYPE_INT = 0,
  HEED_DTYPE_UINT = 1,
  HEED_DTYPE_FLOAT = 2,
  HEED_DTYPE_BFLOAT = 4,
  HEED_DTYPE_BOOL = 6,
  HEED_DTYPE_FLOAT8_E4M3FN = 10
} heed_dtype_code_t;

/* Same layout as DLDataType. lanes must be 1. */
typedef struct heed_dtype {
  uint8_t code; /* a heed_dtype_code_t */
  uint8_t bits;
  uint16_t lanes;
} heed_dtype_t;

/* Same layout as DLTensor. strides are in elements; NULL = compact row-major. byte_offset is added
 * to data, which must be aligned to the element size. Any strides that are not negative are
 * accepted as long as the last dimension of q, k, v, o and of their gradients is contiguous; inputs
 * may be broadcast by stride 0. Outputs must not overlap themselves, inputs or each other; slices
 * of one interleaved buffer are fine. All tensors of a call live on one device. The struct and the
 * arrays it points to are read during the call only. */
typedef struct heed_tensor {
  void* data;
  heed_device_t device;
  int32_t ndim;
  heed_dtype_t dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} heed_tensor_t;

/* ---- What attention computes -------------------------------------------------------------- */
typedef enum heed_causal { HEED_CAUSAL_OFF = 0, HEED_CAUSAL_ON = 1 } heed_causal_t;

/* Where query i stands among the keys: at position i + shift, used by causal, window and ALiBi. */
typedef enum heed_alignment {
  HEED_ALIGN_BOTTOM_RIGHT = 0, /* shift = Skv - Sq: the last query sees the last key */
  HEED_ALIGN_TOP_LEFT = 1      /* shift = 0: the first query sits at the first key */
} heed_alignment_t;

/* The score rule: s = scale * q.k, then softcap * tanh(s / softcap), then + bias, then ALiBi, then
 * mask, softmax with optional sink, dropout, times V. A row with no visible key gives o = 0,
 * lse = -inf (lse = sink with a sink, so that d_lse reaches d_sinks) and otherwise zero gradients.
 */
typedef struct heed_score_args {
  size_t struct_size;
  const double* scale;  /* host scalar, |scale| * log2(e) finite in fp32; NULL = 1 / sqrt(D) */
  double softcap;       /* 0 = off, else in [2^-100, 2^100] */
  heed_causal_t causal; /* on: key j is visible to query i only if j <= i + shift */
  heed_alignment_t alignment;
  int64_t window_left;  /* inclusive: j >= i + shift - window_left; -1 = unlimited */
  int64_t window_right; /* inclusive: j <= i + shift + window_right; -1 = unlimited; 0 if causal */
  const heed_tensor_t* alibi_slopes; /* fp32 [Hq] or [B,Hq]: adds -slope * |i + shift - j| */
  const heed_tensor_t* bias;  /* fp32 or q's dtype, broadcastable to [B,Hq,Sq,Skv] (leading axes may
                                 be missing); packed or paged rows are indexed within the sequence,
                                 whose axis must reach the longest one */
  const heed_tensor_t* mask;  /* bool or uint8, shaped as bias; non-zero = attend */
  const heed_tensor_t* sinks; /* fp32 [Hq]: one extra logit per head, with no value row */
  double dropout_p;           /* in [0, 1); rounded to a multiple of 1/65536 */
  uint64_t dropout_seed;
  uint64_t dropout_offset;
  const heed_tensor_t* dropout_rng; /* uint64 or int64 [2] = {seed, offset} on q's device, read when
                                       the kernel runs; then dropout_seed = dropout_offset = 0 */
} heed_score_args_t;
#define HEED_SCORE_ARGS_INIT                                                                      \
  {                                                                                               \
    sizeof(heed_score_args_t), NULL, 0.0, HEED_CAUSAL_OFF, HEED_ALIGN_BOTTOM_RIGHT, -1, -1, NULL, \
        NULL, NULL, NULL, 0.0, 0, 0, NULL                                                         \
  }

/* Sequence lengths. With cu_seqlens_q, q and o are packed [total_q,Hq,D]; with cu_seqlens_kv, k and
 * v are packed [total_kv,Hkv,D]. Offsets need not start at 0 nor end at the tensor's end; rows
 * outside are not touched. seqused limits a sequence to its first rows; query rows past it get o =
 * 0 and lse = -inf. On the CPU these are host arrays and are fully validated. On a GPU they are
 * device arrays, max_seqlen_q / max_seqlen_kv are required, and the kernel clamps bad entries and
 * raises the flag that heed_check_device_errors() reports. */
typedef struct heed_varlen_args {
  size_t struct_size;
  const heed_tensor_t* cu_seqlens_q;  /* int32 [B+1], non-decreasing */
  const heed_tensor_t* cu_seqlens_kv; /* int32 [B+1], non-decreasing */
  const heed_tensor_t* seqused_q;     /* int32 [B] */
  const heed_tensor_t* seqused_kv;    /* int32 [B] */
  int64_t max_seqlen_q;               /* at least the longest sequence; 0 = derive (CPU only) */
  int64_t max_seqlen_kv;              /* likewise */
} heed_varlen_args_t;
#define HEED_VARLEN_ARGS_INIT \
  { sizeof(heed_varlen_args_t), NULL, NULL, NULL, NULL, 0, 0 }

/* Paged keys and values: k and v are pools [num_pages, page_slots, Hkv, D]; token t of sequence b
 * is at page block_table[b, t / page_slots], slot t % page_slots. Lengths come from seqused_kv.
 * Entries past the last needed page are never read. */
typedef struct heed_paging_args {
  size_t struct_size;
  const heed_tensor_t* block_table; /* int32 [B, max_pages], required */
} heed_paging_args_t;
#define HEED_PAGING_ARGS_INIT \
  { sizeof(heed_paging_args_t), NULL }

/* ---- How a call runs ---------------------------------------------------------------------- */
typedef enum heed_backend {
  HEED_BACKEND_AUTO = 0, /* by the device of q */
  HEED_BACKEND_CPU = 1,
  HEED_BACKEND_CUDA = 2,
  HEED_BACKEND_WEBGPU = 3,   /* host tensors, which it copies, or those of heed_webgpu.h */
  HEED_BACKEND_REFERENCE = 4 /* double-precision oracle on the CPU; also takes float64 tensors */
} heed_backend_t;

typedef enum heed_toggle { HEED_OFF = 0, HEED_ON = 1 } heed_toggle_t;

/* body(body_context, worker) must be called once for every worker in [0, num_workers), on any
 * threads, in any order, at the same time or one after the other; return after the last one has
 * returned. */
typedef void (*heed_parallel_for_t)(void* context, int64_t num_workers,
                                    void (*body)(void* body_context, int64_t worker),
                                    void* body_context);

/* Stream-ordered memory from the caller. allocate returns NULL when it cannot serve the request;
 * its blocks are aligned as heed_exec_args.workspace: to 64 bytes (CPU) or 256 (GPU). */
typedef struct heed_allocator {
  size_t struct_size;
  void* context;
  void* (*allocate)(void* context, size_t size_bytes, void* stream);
  void (*release)(void* context, void* block, size_t size_bytes, void* stream);
} heed_allocator_t;

typedef struct heed_exec_args {
  size_t struct_size;
  heed_backend_t backend;
  heed_toggle_t deterministic; /* dq, d_bias bitwise reproducible too (o, lse, dk, dv always are) */
  heed_toggle_t fixed_split;   /* a row's result does not depend on what else is in the batch */
  heed_toggle_t forbid_slower; /* refuse a slower substitute row instead of running it */
  const char* kernel; /* run exactly this kernel id; NULL = HEED_FORCE_KERNEL, else the planner */
  void* stream;       /* CUDA: cudaStream_t / CUstream. CPU: must be NULL, calls are synchronous */
  void* workspace;    /* NULL = the library allocates; aligned to 64 bytes (CPU) or 256 (GPU);
                         contents undefined on entry */
  size_t workspace_bytes; /* at least heed_plan_info.workspace_bytes when workspace is given */
  const heed_allocator_t* allocator; /* used when workspace is NULL */
  int32_t num_threads; /* CPU workers, at most 4096; 0 = HEED_NUM_THREADS, else one per core */
  heed_parallel_for_t parallel_for; /* CPU: run workers on the caller's pool; NULL = own pool */
  void* parallel_for_context;
} heed_exec_args_t;
#define HEED_EXEC_ARGS_INIT                                                                      \
  {                                                                                              \
    sizeof(heed_exec_args_t), HEED_BACKEND_AUTO, HEED_OFF, HEED_OFF, HEED_OFF, NULL, NULL, NULL, \
        0, NULL, 0, NULL, NULL                                                                   \
  }

/* ---- int8 inputs -------------------------------------------------------------------------- */
typedef enum heed_int8_softmax {
  HEED_INT8_SOFTMAX_FLOAT = 0, /* exponentials in fp32: faster and more accurate */
  HEED_INT8_SOFTMAX_FIXED = 1  /* in integers: the same bits on every instruction set. Takes no
                                  q_scales, k_scales nor v_block_rows, and a scale from 2^-8 to 2 */
} heed_int8_softmax_t;

/* The coarsest arithmetic that P V may use; what runs may be finer, and is so with the fixed
 * softmax. docs/numerics.md says how far each may be off. */
typedef enum heed_int8_values {
  HEED_INT8_VALUES_F32 = 0,
  HEED_INT8_VALUES_BF16 = 1, /* P rounded to bf16 */
  HEED_INT8_VALUES_U8 = 2    /* P rounded to whole 255ths of the row's largest weight */
} heed_int8_values_t;

/* q, k and v as integers: value = scale * integer. Row i of a head uses scale i / block_rows, so
 * that 1 = per token; block_rows = 0 makes one scale for all rows of a head in q and k, and one per
 * channel in v. Absent scales count as 1. Scales must be finite and not negative. */
typedef struct heed_int8_args {
  size_t struct_size;
  const heed_tensor_t* q_scales; /* fp32 [B, Hq, ceil(Sq / q_block_rows)], or [B, Hq, 1] */
  const heed_tensor_t* k_scales; /* fp32 [B, Hkv, ceil(Skv / k_block_rows)], or [B, Hkv, 1] */
  const heed_tensor_t* v_scales; /* fp32 [B, Hkv, ceil(Skv / v_block_rows)], or [B, Hkv, Dv] */
  int64_t q_block_rows;
  int64_t k_block_rows;
  int64_t v_block_rows;
  heed_int8_softmax_t softmax;
  heed_int8_values_t values;
} heed_int8_args_t;
#define HEED_INT8_ARGS_INIT                                                       \
  {                                                                               \
    sizeof(heed_int8_args_t), NULL, NULL, NULL, 0, 0, 0, HEED_INT8_SOFTMAX_FLOAT, \
        HEED_INT8_VALUES_F32                                                      \
  }

/* ---- Forward ------------------------------------------------------------------------------ */
/* Shapes: q [B,Sq,Hq,D] or packed [total_q,Hq,D]; k [B,Skv,Hkv,D], v [B,Skv,Hkv,Dv], packed
 *   [total_kv,Hkv,D], or paged pools; o as q with Dv; lse fp32 [B,Hq,Sq], packed [Hq,total_q]
 *   (on CUDA, unpacked, also fp16: then gradients carry its rounding).
 * Requires: q, k, v, o share one fp dtype and one device; Hkv divides Hq; 1 <= D, Dv. With int8, q,
 *   k and v are int8 and o is of any fp dtype.
 * Ensures: every element of o (and lse) that belongs to a sequence is written; lse is the natural
 * log of the softmax denominator, sink included. */
typedef struct heed_forward_args {
  size_t struct_size;
  const heed_tensor_t* q;   /* required */
  const heed_tensor_t* k;   /* required */
  const heed_tensor_t* v;   /* required */
  const heed_tensor_t* o;   /* required, output */
  const heed_tensor_t* lse; /* optional, output */
  const heed_score_args_t* score;
  const heed_varlen_args_t* varlen;
  const heed_paging_args_t* paging;
  const heed_exec_args_t* exec;
  const heed_int8_args_t* int8; /* required when q is int8, else NULL */
} heed_forward_args_t;
#define HEED_FORWARD_ARGS_INIT \
  { sizeof(heed_forward_args_t), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

HEED_API heed_status_t heed_forward(const heed_forward_args_t* args);

/* ---- Backward ----------------------------------------------------------------------------- */
/* Gradient of the forward call described by `forward`, whose o and lse are inputs here.
 * Shapes: d_o as o; d_lse as lse; dq, dk, dv as q, k, v (packed rows outside every sequence are set
 * to 0); d_bias as bias, reduced over its stride-0 and size-1 axes; d_sinks fp32 [Hq]. Errors:
 * HEED_INVALID_ARGUMENT when forward->lse is NULL or a gradient has no matching input. On CUDA no
 * page of k and v may be listed by two sequences: their gradients are not added up there. */
typedef struct heed_backward_args {
  size_t struct_size;
  const heed_forward_args_t* forward; /* required; its exec is ignored: this struct has its own */
  const heed_tensor_t* d_o;           /* required */
  const heed_tensor_t* d_lse;
  const heed_tensor_t* dq;      /* required, output */
  const heed_tensor_t* dk;      /* required, output */
  const heed_tensor_t* dv;      /* required, output */
  const heed_tensor_t* d_bias;  /* output, fp32 or q's dtype */
  const heed_tensor_t* d_sinks; /* output, fp32 [Hq] */
  const heed_exec_args_t* exec;
} heed_backward_args_t;
#define HEED_BACKWARD_ARGS_INIT \
  { sizeof(heed_backward_args_t), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

HEED_API heed_status_t heed_backward(const heed_backward_args_t* args);

/* ---- Decode with a KV cache --------------------------------------------------------------- */
typedef enum heed_rotary_layout {
  HEED_ROTARY_INTERLEAVED = 0, /* pairs (2i, 2i+1) */
  HEED_ROTARY_HALF_SPLIT = 1   /* pairs (i, i + rot/2) */
} heed_rotary_layout_t;

typedef enum heed_kv_format {
  HEED_KV_PLAIN = 0, /* cache elements have q's dtype */
  HEED_KV_INT8 = 1,
  HEED_KV_FP8_E4M3 = 2,
  HEED_KV_INT4 = 3, /* two values a byte, low nibble first */
  HEED_KV_Q8_0 = 4, /* blocks of 32: fp16 scale + 32 int8 */
  HEED_KV_Q4_0 = 5  /* blocks of 32: fp16 scale + 16 bytes, whose low nibbles are elements 0 to 15
                       and high ones 16 to 31; value = scale * (nibble - 8) */
} heed_kv_format_t;

/* INTERLEAVED is for HEED_KV_INT8, keys and values alike. Slots of a page (or of a row of a
 * contiguous cache) form blocks of 16, and their number is a multiple of 16; a row has bytes for D
 * rounded up to 4. Element d of slot s is byte (d / 4) * 64 + (s % 16) * 4 + d % 4 of the rows of
 * its block laid end to end. */
typedef enum heed_kv_layout {
  HEED_KV_LAYOUT_ROWS = 0,       /* [page, slot, Hkv, bytes] */
  HEED_KV_LAYOUT_INTERLEAVED = 1 /* 4-byte groups of a dot product kept together, CPU decode */
} heed_kv_layout_t;

/* Scales of a quantised cache; symmetric: value = scale * payload. Shape fp32 [page, slot, Hkv,
 * groups] (contiguous caches: [B, S, Hkv, groups]); groups = 1 for per-token-head scales. */
typedef struct heed_kv_quant_args {
  size_t struct_size;
  heed_kv_format_t format;
  heed_kv_layout_t layout;
  const heed_tensor_t* k_scales;
  const heed_tensor_t* v_scales;
} heed_kv_quant_args_t;
#define HEED_KV_QUANT_ARGS_INIT \
  { sizeof(heed_kv_quant_args_t), HEED_KV_PLAIN, HEED_KV_LAYOUT_ROWS, NULL, NULL }

/* Appends k_new / v_new (if given, with rotary applied to q and k_new) at each sequence's cache
 * length, then attends to cache length + Snew keys. Caller's lengths are never changed. Shapes: q
 * [B,Snew,Hq,D]; caches [Bc,S,Hkv,D] / [Bc,S,Hkv,Dv] or pools [pages,slots,Hkv,D] with block_table;
 * k_new [B,Snew,Hkv,D]; v_new [B,Snew,Hkv,Dv]; o [B,Snew,Hq,Dv]; lse fp32 [B,Hq,Snew]; cos and sin
 * [rows, rot/2], fp32 or q's dtype, row = position of the token: its cache length + index; given
 * with k_new only. Caches that nothing is appended to are only read, and may share memory: MLA's
 * v_cache is a view of the first Dv columns of k_cache. Keys count from slot 0, left padding
 * included: it is hidden, but bias, mask, window, ALiBi and positions do not shift. */
typedef struct heed_decode_args {
  size_t struct_size;
  const heed_tensor_t* q;       /* required */
  const heed_tensor_t* k_cache; /* required, in and out */
  const heed_tensor_t* v_cache; /* required, in and out */
  const heed_tensor_t* k_new;
  const heed_tensor_t* v_new;
  const heed_tensor_t* o; /* required, output */
  const heed_tensor_t* lse;
  const heed_tensor_t* cache_lengths;     /* int32 [B], without the new tokens; required */
  const heed_tensor_t* cache_batch_index; /* int32 [B]: sequence b lives in cache row index[b]; with
                                             k_new no two in one: on a device results are undefined,
                                             on the host it is refused */
  const heed_tensor_t* cache_leftpad;     /* int32 [B]: first valid slot */
  const heed_tensor_t* rotary_cos;
  const heed_tensor_t* rotary_sin;
  heed_rotary_layout_t rotary_layout;
  int32_t num_splits; /* 0 = planned from the problem */
  const heed_kv_quant_args_t* quant;
  const heed_score_args_t* score;
  const heed_paging_args_t* paging;
  const heed_exec_args_t* exec;
} heed_decode_args_t;
#define HEED_DECODE_ARGS_INIT                                                                     \
  {                                                                                               \
    sizeof(heed_decode_args_t), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        NULL, HEED_ROTARY_INTERLEAVED, 0, NULL, NULL, NULL, NULL                                  \
  }

HEED_API heed_status_t heed_decode(const heed_decode_args_t* args);

/* ---- Combine ------------------------------------------------------------------------------ */
/* Merges partial results of disjoint key sets, in index order.
 * Shapes: o_partial fp32 [P,B,Sq,Hq,Dv]; lse_partial fp32 [P,B,Hq,Sq] (sinks excluded); o fp
 *   [B,Sq,Hq,Dv]; lse fp32 [B,Hq,Sq]; sinks fp32 [Hq], added once. */
typedef struct heed_combine_args {
  size_t struct_size;
  const heed_tensor_t* o_partial;   /* required */
  const heed_tensor_t* lse_partial; /* required */
  const heed_tensor_t* sinks;
  const heed_tensor_t* o; /* required, output */
  const heed_tensor_t* lse;
  const heed_exec_args_t* exec;
} heed_combine_args_t;
#define HEED_COMBINE_ARGS_INIT \
  { sizeof(heed_combine_args_t), NULL, NULL, NULL, NULL, NULL, NULL }

HEED_API heed_status_t heed_combine(const heed_combine_args_t* args);

/* ---- Quantise a KV cache ------------------------------------------------------------------- */
/* Rounds to nearest with a scale from the largest magnitude of each group (docs/numerics.md).
 * Shapes: source fp [B,S,Hkv,D]; payload uint8 [B,S,Hkv,bytes]; scales fp32 [B,S,Hkv,groups]. */
typedef struct heed_quantize_kv_args {
  size_t struct_size;
  const heed_tensor_t* source;  /* required */
  const heed_tensor_t* payload; /* required, output */
  const heed_tensor_t* scales;  /* output, required for formats whose scales stand apart */
  heed_kv_format_t format;
  heed_kv_layout_t layout;
  const heed_exec_args_t* exec;
} heed_quantize_kv_args_t;
#define HEED_QUANTIZE_KV_ARGS_INIT \
  { sizeof(heed_quantize_kv_args_t), NULL, NULL, NULL, HEED_KV_INT8, HEED_KV_LAYOUT_ROWS, NULL }

HEED_API heed_status_t heed_quantize_kv(const heed_quantize_kv_args_t* args);

/* ---- Dropout mask --------------------------------------------------------------------------- */
/* Writes the mask that forward and backward use: 1 = kept, 0 = dropped. A pure function of
 * (seed, offset, b, h, i, j), the same on every backend. Shape: uint8 or bool [B,Hq,Sq,Skv]. */
typedef struct heed_dropout_mask_args {
  size_t struct_size;
  const heed_tensor_t* mask; /* required, output */
  double dropout_p;
  uint64_t dropout_seed;
  uint64_t dropout_offset;
  const heed_exec_args_t* exec;
} heed_dropout_mask_args_t;
#define HEED_DROPOUT_MASK_ARGS_INIT \
  { sizeof(heed_dropout_mask_args_t), NULL, 0.0, 0, 0, NULL }

HEED_API heed_status_t heed_dropout_mask(const heed_dropout_mask_args_t* args);

/* ---- Sessions: device-resident generation --------------------------------------------------- */
/* A session owns a contiguous KV cache, the queries of the newest step and its output, on one
 * device. Every sequence has the same length. Steps: append, decode, output; append and truncate
 * are allowed at any time, decode after an append, output after a decode. Other orders are
 * HEED_INVALID_ARGUMENT and change nothing. Calls on one session take turns; a handle that is not
 * open is refused. See docs/sessions.md. */
typedef struct heed_session heed_session_t;

typedef struct heed_session_config {
  size_t struct_size;
  heed_device_t device;
  int64_t num_sequences; /* B */
  int64_t num_q_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t head_dim_v;
  int64_t capacity_tokens; /* per sequence */
  heed_dtype_t dtype;      /* of q and o inside the session */
  heed_kv_format_t kv_format;
  heed_toggle_t use_graph; /* replay steps as a device graph where the backend has one */
  /* Of every decode. Structs are copied; the data of score's tensors must live as long as the
   * session, and key axes of bias and mask reach capacity_tokens. */
  const heed_score_args_t* score;
  const heed_exec_args_t* exec; /* without workspace: memory comes from exec.allocator, if given */
} heed_session_config_t;
#define HEED_SESSION_CONFIG_INIT                                           \
  {                                                                        \
    sizeof(heed_session_config_t), {HEED_DEVICE_CPU, 0}, 0, 0, 0, 0, 0, 0, \
        {HEED_DTYPE_FLOAT, 32, 1}, HEED_KV_PLAIN, HEED_OFF, NULL, NULL     \
  }

typedef struct heed_session_info {
  size_t struct_size;
  int64_t length_tokens; /* tokens in the cache of every sequence */
  int64_t capacity_tokens;
  size_t device_bytes; /* memory the session holds */
} heed_session_info_t;
#define HEED_SESSION_INFO_INIT \
  { sizeof(heed_session_info_t), 0, 0, 0 }

/* On success *session owns its buffers until heed_session_destroy. */
HEED_API heed_status_t heed_session_create(const heed_session_config_t* config,
                                           heed_session_t** session);
HEED_API heed_status_t heed_session_destroy(heed_session_t* session); /* NULL is fine */
/* q [B,S,Hq,D], k [B,S,Hkv,D], v [B,S,Hkv,Dv], host or device, fp32 or the session's dtype, S >= 1;
 * appends S tokens. Host tensors may change when it returns. */
HEED_API heed_status_t heed_session_append(heed_session_t* session, const heed_tensor_t* q,
                                           const heed_tensor_t* k, const heed_tensor_t* v);
/* Attends the queries of the last append to the whole cache, by the session's score rule (whose
 * causal, off by default, orders the tokens of a step). */
HEED_API heed_status_t heed_session_decode(heed_session_t* session);
/* Copies the last output to o [B,S,Hq,Dv], host or device, fp32 or the session's dtype. Waits for
 * it when o is on the host. */
HEED_API heed_status_t heed_session_output(heed_session_t* session, const heed_tensor_t* o);
HEED_API heed_status_t heed_session_synchronize(heed_session_t* session);
/* Keeps the first length_tokens tokens; 0 starts anew. */
HEED_API heed_status_t heed_session_truncate(heed_session_t* session, int64_t length_tokens);
HEED_API heed_status_t heed_session_query(heed_session_t* session, heed_session_info_t* info);

/* ---- Plan, explain, prepare ------------------------------------------------------------------ */
typedef enum heed_op {
  HEED_OP_FORWARD = 0,     /* args: heed_forward_args_t */
  HEED_OP_BACKWARD = 1,    /* args: heed_backward_args_t */
  HEED_OP_DECODE = 2,      /* args: heed_decode_args_t */
  HEED_OP_COMBINE = 3,     /* args: heed_combine_args_t */
  HEED_OP_QUANTIZE_KV = 4, /* args: heed_quantize_kv_args_t */
  HEED_OP_DROPOUT_MASK = 5 /* args: heed_dropout_mask_args_t */
} heed_op_t;

typedef struct heed_plan_info {
  size_t struct_size;
  char kernel_id[128];    /* row that the call would run */
  int64_t tile_q_rows;    /* query rows (G * tokens) of one task */
  int64_t tile_kv_rows;   /* keys of one inner step */
  int64_t num_tasks;      /* independent tasks of the launch */
  int64_t num_splits;     /* parts the keys of one row are split into */
  size_t workspace_bytes; /* scratch the call needs beyond its arguments */
  /* On when a row for this dtype that this machine can run ranks higher but was excluded (head dim,
   * HEED_CPU_TARGET, forced kernel), or a generic row runs on a machine with SIMD targets. */
  heed_toggle_t is_slower_substitute;
} heed_plan_info_t;
#define HEED_PLAN_INFO_INIT \
  { sizeof(heed_plan_info_t), {0}, 0, 0, 0, 0, 0, HEED_OFF }

/* What the same call would do. Reads shapes, dtypes, devices and host length arrays; tensor data
 * pointers may be NULL. The launch uses the same plan. */
HEED_API heed_status_t heed_plan(heed_op_t op, const void* args, heed_plan_info_t* plan);

/* The plan in words: chosen row, tile, workspace, and for each other row the first reason against
 * it. Writes at most capacity_bytes with a terminating 0; *needed_bytes (may be NULL) is the full
 * size including it. Call with capacity 0 to ask. Succeeds also when no row fits, and then says
 * why. */
HEED_API heed_status_t heed_explain(heed_op_t op, const void* args, char* text,
                                    size_t capacity_bytes, size_t* needed_bytes);

/* Compiles, loads and sets up whatever the same call needs, so that the call itself never does. */
HEED_API heed_status_t heed_prepare(heed_op_t op, const void* args);

/* ---- Device errors, info --------------------------------------------------------------------- */
typedef struct heed_device_errors {
  size_t struct_size;
  int64_t num_bad_lengths;       /* lengths or offsets that were clamped */
  int64_t num_bad_block_entries; /* block-table entries that were out of range */
} heed_device_errors_t;
#define HEED_DEVICE_ERRORS_INIT \
  { sizeof(heed_device_errors_t), 0, 0 }

/* Reports and clears what kernels on this device flagged since the last call, without a sync. */
HEED_API heed_status_t heed_check_device_errors(heed_device_t device, heed_device_errors_t* errors);

typedef enum heed_info_format { HEED_INFO_TEXT = 0, HEED_INFO_JSON = 1 } heed_info_format_t;

/* Backends, CPU targets and devices, and for each that cannot run here the reason. Buffer rules as
 * for heed_explain. */
HEED_API heed_status_t heed_info(heed_info_format_t format, char* text, size_t capacity_bytes,
                                 size_t* needed_bytes);

/* ---- Tune ------------------------------------------------------------------------------------ */
/* Which kernel row is fastest depends on the device and the problem. heed_tune measures every row
 * that would run a call and stores the fastest in the cache folder; later calls of the same class
 * (docs/tune.md), of any process of this user on such a device, run that row, heed_plan names it
 * and heed_explain says why. exec.kernel and HEED_FORCE_KERNEL come first; HEED_TUNE=off, and
 * fixed_split, leave stored choices aside. */
typedef enum heed_tune_verdict {
  HEED_TUNE_DEFAULT = 0, /* what runs without tuning: the others are compared with it */
  HEED_TUNE_FASTER = 1,  /* by more than 2 %, 1 us and the spread of the rounds */
  HEED_TUNE_NOT_FASTER = 2,
  HEED_TUNE_FAR_SLOWER = 3, /* more than twice the fastest at a first look, not measured further */
  HEED_TUNE_REFUSED = 4     /* it failed, or its results differ by more than rounding: `reason` */
} heed_tune_verdict_t;

typedef struct heed_tune_row {
  size_t struct_size;
  const char* kernel_id;
  heed_tune_verdict_t verdict;
  heed_toggle_t is_chosen; /* of one row: the fastest, else the default one */
  double seconds;          /* of one call, median of the rounds; 0 when refused */
  double ratio;            /* of its time to the default row's, median of the rounds */
  double spread;           /* half the distance between the quartiles of that ratio, over it */
  const char* reason;      /* "" unless refused */
} heed_tune_row_t;

/* Called once for each row when all are measured, the default one first. Pointers are valid during
 * the call. */
typedef void (*heed_tune_report_t)(void* context, const heed_tune_row_t* row);

typedef struct heed_tune_options {
  size_t struct_size;
  heed_toggle_t dry_run;     /* measure and report, store nothing */
  int32_t num_rounds;        /* 1 to 1000, each of which runs every row; 0 = 7 */
  double slice_seconds;      /* shortest time of a row in a round, at most 60; 0 = 0.01 */
  heed_tune_report_t report; /* may be NULL */
  void* report_context;
} heed_tune_options_t;
#define HEED_TUNE_OPTIONS_INIT \
  { sizeof(heed_tune_options_t), HEED_OFF, 0, 0.0, NULL, NULL }

/* op: HEED_OP_FORWARD or HEED_OP_BACKWARD. args are read as by heed_plan: no data but host arrays
 * of lengths. The call runs on tensors of its own of the same shapes and strides (drawn at random,
 * sequences of equal length where lengths are on a device), so the device needs room for them, and
 * on a stream of its own. exec.stream, workspace and forbid_slower are not looked at. Blocks until
 * it is done; calls take turns. options may be NULL.
 * Errors: HEED_UNSUPPORTED for other operations, int8 tensors, fixed_split, and backends other than
 * the CPU and CUDA; HEED_INVALID_ARGUMENT when exec.kernel is given or the call has no work;
 * HEED_UNAVAILABLE when there is no folder to store to. */
HEED_API heed_status_t heed_tune(heed_op_t op, const void* args,
                                 const heed_tune_options_t* options);

/* Every stored choice: device, problem class, rows and times, and whether it was made for this
 * library. Buffer rules as for heed_explain. */
HEED_API heed_status_t heed_tune_describe(heed_info_format_t format, char* text,
                                          size_t capacity_bytes, size_t* needed_bytes);

/* Removes every stored choice, of whatever device and library. num_removed may be NULL. */
HEED_API heed_status_t heed_tune_clear(int64_t* num_removed);

/* ---- Kernel packs ---------------------------------------------------------------------------- */
/* GPU kernels compiled ahead of time into one file, on any machine that has the GPU vendor's
 * compiler library. The environment variable HEED_PACK, or lying beside the library, puts a pack to
 * use; nothing it holds is then compiled at run time. */

/* Called once before the first kernel and after each, never by two threads at once. */
typedef void (*heed_pack_progress_t)(void* context, int64_t num_done, int64_t num_kernels,
                                     const char* kernel);

typedef struct heed_pack_args {
  size_t struct_size;
  const char* path;    /* required; the file appears whole or not at all */
  const char* archs;   /* such as "75,80,90a"; NULL = one per generation that has kernels */
  const char* kernels; /* pattern over labels of shipped kernels, * and ? as in file names; NULL =
                          all; those of calls are taken in any case */
  int32_t num_threads; /* 0 = every core the process may use */
  heed_pack_progress_t progress; /* may be NULL */
  void* progress_context;
  /* Beside the plain and causal kernels, those with these features: sets separated by commas, the
   * features of a set joined by +, such as "window,softcap+sinks"; "all" = each of them alone:
   * window softcap alibi bias bias-f32 mask sinks dropout packed paged split deterministic d-bias,
   * and of caches that heed_decode reads int8 fp8 int4 */
  const char* features;
  /* Kernels of these calls, at their head dims and with their features; without `features` then no
   * others. Read as by heed_plan: pointers to data may be NULL, tensors may be on any device. */
  const heed_forward_args_t* const* calls;
  int64_t num_calls;
  heed_toggle_t with_gradients; /* also the kernels of the calls' backward passes */
  const heed_decode_args_t* const* decode_calls; /* as `calls`, with the kernels that append */
  int64_t num_decode_calls;
} heed_pack_args_t;
#define HEED_PACK_ARGS_INIT \
  { sizeof(heed_pack_args_t), NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, HEED_OFF, NULL, 0 }

HEED_API heed_status_t heed_pack_build(const heed_pack_args_t* args);

/* Who built the pack, and every kernel in it. Buffer rules as for heed_explain. */
HEED_API heed_status_t heed_pack_describe(const char* path, heed_info_format_t format, char* text,
                                          size_t capacity_bytes, size_t* needed_bytes);

/* Reads everything: HEED_OK when all of it is sound and this library would use it, else
 * HEED_INVALID_ARGUMENT and the reason. */
HEED_API heed_status_t heed_pack_verify(const char* path);

#ifdef __cplusplus
}
#endif

#endif /* HEED_HEED_H_ */
