// FlashAttention v2 for CUDA, fp16, forward and backward: a C++ interface of other programs, here
// as inline functions over heed.h. Programs written against it compile unchanged and link with
// -lheed.
//
// Memory: q, k, v, o and their gradients lie as [batch, num_heads, seq_len, head_dim] (head stride
// seq_len * head_dim); overloads with FlashAttentionV2Layout::kRowsFirst take
// [batch, seq_len, num_heads, head_dim]. l is [batch, num_heads, seq_len], the natural logarithm of
// the softmax denominator in fp16: its rounding (2^-11 relative) limits the gradients' accuracy.
//
// The functions keep no state and may be called by any number of threads. Calls are asynchronous on
// `stream`; the tensors live on the runtime's current device. Errors: cudaErrorInvalidValue for a
// null pointer or a configuration that is_config_valid() refuses, cudaErrorMemoryAllocation,
// cudaErrorLaunchFailure, cudaErrorNotSupported, and cudaErrorDevicesUnavailable without a usable
// device; heed_last_error() says more.
#ifndef FLASH_ATTENTION_V2_H_
#define FLASH_ATTENTION_V2_H_

#if defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#define FLASH_ATTENTION_V2_HAS_RUNTIME 1
#endif
#if __has_include(<cuda_fp16.h>)
#include <cuda_fp16.h>
#define FLASH_ATTENTION_V2_HAS_HALF 1
#endif
#endif

#include <cstdint>
#include <cstdio>

#include "heed/heed.h"

#if !defined(FLASH_ATTENTION_V2_HAS_HALF)
// Raw IEEE binary16 bits.
struct half {
  unsigned short bits;
};
#endif

#if defined(FLASH_ATTENTION_V2_HAS_RUNTIME) && defined(__GNUC__) && !defined(__CUDACC__)
// Weak: a program that found the runtime's headers need not link the runtime.
extern "C" cudaError_t cudaGetDevice(int* device) __attribute__((weak));
#endif

#if !defined(FLASH_ATTENTION_V2_HAS_RUNTIME)
typedef struct CUstream_st* cudaStream_t;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorUnknown = 999
};
#endif

struct FlashAttentionV2Config {
  int batch_size;
  int seq_len;
  int num_heads;
  int head_dim;
  bool use_causal_mask;
  float dropout_rate;  // in [0, 1)
  unsigned long long seed;
};

enum class FlashAttentionV2Layout {
  kHeadsFirst,  // [batch, num_heads, seq_len, head_dim]
  kRowsFirst    // [batch, seq_len, num_heads, head_dim]
};

namespace flash_attention_v2_detail {

inline cudaError_t ErrorOf(heed_status_t status) {
  switch (status) {
    case HEED_OK:
      return cudaSuccess;
    case HEED_INVALID_ARGUMENT:
      return cudaErrorInvalidValue;
    case HEED_UNSUPPORTED:
      return cudaErrorNotSupported;
    case HEED_OUT_OF_MEMORY:
      return cudaErrorMemoryAllocation;
    case HEED_DEVICE_ERROR:
      return cudaErrorLaunchFailure;
    case HEED_UNAVAILABLE:
      return cudaErrorDevicesUnavailable;
    default:
      return cudaErrorUnknown;
  }
}

inline heed_device_t CurrentDevice() {
  heed_device_t device = {HEED_DEVICE_CUDA, 0};
#if defined(FLASH_ATTENTION_V2_HAS_RUNTIME)
  int ordinal = 0;
  if (cudaGetDevice != nullptr && cudaGetDevice(&ordinal) == cudaSuccess) {
    device.device_id = ordinal;
  }
#endif
  return device;
}

// A tensor and the memory its shape and strides need.
struct Tensor {
  int64_t shape[4];
  int64_t strides[4];
  heed_tensor_t tensor;

  // q, k, v, o or a gradient.
  Tensor(const half* data, const FlashAttentionV2Config& config, FlashAttentionV2Layout layout)
      : shape{config.batch_size, config.seq_len, config.num_heads, config.head_dim} {
    const int64_t rows = config.seq_len, heads = config.num_heads, dim = config.head_dim;
    const bool heads_first = layout == FlashAttentionV2Layout::kHeadsFirst;
    strides[0] = heads * rows * dim;
    strides[1] = heads_first ? dim : heads * dim;
    strides[2] = heads_first ? rows * dim : dim;
    strides[3] = 1;
    Set(data, 4);
  }
  // l.
  Tensor(const half* data, const FlashAttentionV2Config& config)
      : shape{config.batch_size, config.num_heads, config.seq_len, 1},
        strides{int64_t{config.num_heads} * config.seq_len, config.seq_len, 1, 1} {
    Set(data, 3);
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

 private:
  void Set(const half* data, int ndim) {
    // heed writes through output tensors only.
    tensor.data = const_cast<half*>(data);
    tensor.device = CurrentDevice();
    tensor.ndim = ndim;
    tensor.dtype.code = HEED_DTYPE_FLOAT;
    tensor.dtype.bits = 16;
    tensor.dtype.lanes = 1;
    tensor.shape = shape;
    tensor.strides = strides;
    tensor.byte_offset = 0;
  }
};

// The forward call, from which the backward call is described too.
struct ForwardCall {
  Tensor q, k, v, o, l;
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;

  struct Pointers {
    const half *q, *k, *v, *o, *l;
  };

  ForwardCall(const Pointers& p, const FlashAttentionV2Config& config,
              FlashAttentionV2Layout layout, cudaStream_t stream)
      : q(p.q, config, layout),
        k(p.k, config, layout),
        v(p.v, config, layout),
        o(p.o, config, layout),
        l(p.l, config) {
    score.causal = config.use_causal_mask ? HEED_CAUSAL_ON : HEED_CAUSAL_OFF;
    score.dropout_p = config.dropout_rate;
    score.dropout_seed = config.dropout_rate > 0.0f ? config.seed : 0;
    exec.stream = stream;
    args.q = &q.tensor;
    args.k = &k.tensor;
    args.v = &v.tensor;
    args.o = &o.tensor;
    args.lse = &l.tensor;
    args.score = &score;
    args.exec = &exec;
  }
};

}  // namespace flash_attention_v2_detail

// Every size positive, head_dim at most 576, dropout_rate in [0, 1).
inline bool is_config_valid(const FlashAttentionV2Config& config) {
  constexpr int kMaxHeadDim = 576;
  return config.batch_size > 0 && config.seq_len > 0 && config.num_heads > 0 &&
         config.head_dim > 0 && config.head_dim <= kMaxHeadDim && config.dropout_rate >= 0.0f &&
         config.dropout_rate < 1.0f;
}

// Opens the driver and looks for a device. Not required before other calls.
inline cudaError_t flash_attention_v2_init() {
  heed_device_errors_t errors = HEED_DEVICE_ERRORS_INIT;
  return flash_attention_v2_detail::ErrorOf(
      heed_check_device_errors(flash_attention_v2_detail::CurrentDevice(), &errors));
}

// Nothing is kept between calls, so there is nothing to free.
inline cudaError_t flash_attention_v2_cleanup() { return cudaSuccess; }

inline cudaError_t flash_attention_v2_forward(const half* q, const half* k, const half* v, half* o,
                                              half* l, const FlashAttentionV2Config& config,
                                              FlashAttentionV2Layout layout,
                                              cudaStream_t stream = nullptr) {
  if (q == nullptr || k == nullptr || v == nullptr || o == nullptr || l == nullptr ||
      !is_config_valid(config)) {
    return cudaErrorInvalidValue;
  }
  const flash_attention_v2_detail::ForwardCall call({q, k, v, o, l}, config, layout, stream);
  return flash_attention_v2_detail::ErrorOf(heed_forward(&call.args));
}

inline cudaError_t flash_attention_v2_forward(const half* q, const half* k, const half* v, half* o,
                                              half* l, const FlashAttentionV2Config& config,
                                              cudaStream_t stream = nullptr) {
  return flash_attention_v2_forward(q, k, v, o, l, config, FlashAttentionV2Layout::kHeadsFirst,
                                    stream);
}

inline cudaError_t flash_attention_v2_backward(const half* q, const half* k, const half* v,
                                               const half* o, const half* l, const half* do_grad,
                                               half* dq, half* dk, half* dv,
                                               const FlashAttentionV2Config& config,
                                               FlashAttentionV2Layout layout,
                                               cudaStream_t stream = nullptr) {
  using flash_attention_v2_detail::Tensor;
  if (q == nullptr || k == nullptr || v == nullptr || o == nullptr || l == nullptr ||
      do_grad == nullptr || dq == nullptr || dk == nullptr || dv == nullptr ||
      !is_config_valid(config)) {
    return cudaErrorInvalidValue;
  }
  const flash_attention_v2_detail::ForwardCall call({q, k, v, o, l}, config, layout, stream);
  const Tensor d_o(do_grad, config, layout);
  const Tensor d_q(dq, config, layout);
  const Tensor d_k(dk, config, layout);
  const Tensor d_v(dv, config, layout);
  heed_backward_args_t args = HEED_BACKWARD_ARGS_INIT;
  args.forward = &call.args;
  args.d_o = &d_o.tensor;
  args.dq = &d_q.tensor;
  args.dk = &d_k.tensor;
  args.dv = &d_v.tensor;
  args.exec = &call.exec;
  return flash_attention_v2_detail::ErrorOf(heed_backward(&args));
}

inline cudaError_t flash_attention_v2_backward(const half* q, const half* k, const half* v,
                                               const half* o, const half* l, const half* do_grad,
                                               half* dq, half* dk, half* dv,
                                               const FlashAttentionV2Config& config,
                                               cudaStream_t stream = nullptr) {
  return flash_attention_v2_backward(q, k, v, o, l, do_grad, dq, dk, dv, config,
                                     FlashAttentionV2Layout::kHeadsFirst, stream);
}

#endif  // FLASH_ATTENTION_V2_H_
