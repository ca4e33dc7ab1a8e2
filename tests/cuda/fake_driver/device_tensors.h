// heed_tensor_t of device memory that nobody reads or writes: addresses only.
#ifndef HEED_TESTS_CUDA_FAKE_DRIVER_DEVICE_TENSORS_H_
#define HEED_TESTS_CUDA_FAKE_DRIVER_DEVICE_TENSORS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "heed/heed.h"

namespace heed::test {

inline constexpr heed_dtype_t kFakeF16 = {2, 16, 1};
inline constexpr heed_dtype_t kFakeF32 = {2, 32, 1};

// Contiguous, at an address of its own that is a multiple of 256.
class DeviceTensor {
 public:
  explicit DeviceTensor(std::vector<std::int64_t> shape, heed_dtype_t dtype = kFakeF16)
      : shape_(std::move(shape)), strides_(shape_.size()) {
    std::int64_t stride = 1;
    for (std::size_t axis = shape_.size(); axis-- > 0;) {
      strides_[axis] = stride;
      stride *= shape_[axis];
    }
    static std::uintptr_t next_address = std::uintptr_t{1} << 40;
    tensor_.data = reinterpret_cast<void*>(next_address);
    next_address += std::uintptr_t{1} << 38;
    tensor_.device = {HEED_DEVICE_CUDA, 0};
    tensor_.ndim = static_cast<std::int32_t>(shape_.size());
    tensor_.dtype = dtype;
    tensor_.shape = shape_.data();
    tensor_.strides = strides_.data();
    tensor_.byte_offset = 0;
  }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  const heed_tensor_t* abi() const { return &tensor_; }
  heed_tensor_t& tensor() { return tensor_; }
  std::vector<std::int64_t>& strides() { return strides_; }

 private:
  std::vector<std::int64_t> shape_, strides_;
  heed_tensor_t tensor_ = {};
};

// A forward call on the fake GPU with every optional part connected to nothing.
struct FakeCall {
  FakeCall(std::int64_t batch, std::int64_t rows, std::int64_t heads, std::int64_t head_dim)
      : q({batch, rows, heads, head_dim}),
        k({batch, rows, heads, head_dim}),
        v({batch, rows, heads, head_dim}),
        o({batch, rows, heads, head_dim}),
        lse({batch, heads, rows}, kFakeF32) {
    args.q = q.abi();
    args.k = k.abi();
    args.v = v.abi();
    args.o = o.abi();
    args.lse = lse.abi();
    args.score = &score;
    args.exec = &exec;
  }

  DeviceTensor q, k, v, o, lse;
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
};

// One token of two sequences with a paged int8 cache of two KV heads, appended.
struct FakeDecode {
  explicit FakeDecode(std::int64_t head_dim)
      : q({2, 1, 4, head_dim}),
        o({2, 1, 4, head_dim}),
        rows({2, 1, 2, head_dim}),
        k({8, 16, 2, head_dim}, {HEED_DTYPE_INT, 8, 1}),
        v({8, 16, 2, head_dim}, {HEED_DTYPE_INT, 8, 1}),
        k_scales({8, 16, 2, 1}, kFakeF32),
        v_scales({8, 16, 2, 1}, kFakeF32),
        lengths({2}, {HEED_DTYPE_INT, 32, 1}),
        table({2, 4}, {HEED_DTYPE_INT, 32, 1}) {
    args.q = q.abi();
    args.o = o.abi();
    args.k_new = args.v_new = rows.abi();
    args.k_cache = k.abi();
    args.v_cache = v.abi();
    args.cache_lengths = lengths.abi();
    paging.block_table = table.abi();
    quant.format = HEED_KV_INT8;
    quant.k_scales = k_scales.abi();
    quant.v_scales = v_scales.abi();
    args.quant = &quant;
    args.paging = &paging;
    args.score = &score;
  }

  DeviceTensor q, o, rows, k, v, k_scales, v_scales, lengths, table;
  heed_kv_quant_args_t quant = HEED_KV_QUANT_ARGS_INIT;
  heed_paging_args_t paging = HEED_PAGING_ARGS_INIT;
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
};

}  // namespace heed::test

#endif  // HEED_TESTS_CUDA_FAKE_DRIVER_DEVICE_TENSORS_H_
