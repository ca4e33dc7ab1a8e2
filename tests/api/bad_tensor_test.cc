// Tensors that no forward call accepts: pointers, shapes, strides, dtypes, devices, addresses.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "api/cuda_driver.h"
#include "api/forward_call.h"

namespace heed::test {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

void ExpectInvalid(const std::function<void(ForwardCall&)>& spoil, const std::string& fragment) {
  ExpectRefused(spoil, HEED_INVALID_ARGUMENT, fragment);
}

void MoveTo(ForwardCall& call, std::int32_t device_type) {
  for (OwnedTensor* tensor : {&call.q, &call.k, &call.v, &call.o, &call.lse}) {
    tensor->abi.device = {device_type, 0};
  }
}

TEST(BadTensor, TheUnspoiledCallRuns) {
  ExpectAccepted([](ForwardCall&) {});
}

TEST(BadTensor, NullPointers) {
  EXPECT_EQ(heed_forward(nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "args = NULL: is required");
  ExpectInvalid([](ForwardCall& call) { call.args.q = nullptr; }, "q = NULL: is required");
  ExpectInvalid([](ForwardCall& call) { call.args.k = nullptr; }, "k = NULL: is required");
  ExpectInvalid([](ForwardCall& call) { call.args.v = nullptr; }, "v = NULL: is required");
  ExpectInvalid([](ForwardCall& call) { call.args.o = nullptr; }, "o = NULL: is required");
  ExpectInvalid([](ForwardCall& call) { call.k.abi.shape = nullptr; }, "k.shape = NULL");
  ExpectInvalid([](ForwardCall& call) { call.v.abi.data = nullptr; }, "v.data = NULL");
  ExpectInvalid([](ForwardCall& call) { call.o.abi.data = nullptr; }, "o.data = NULL");
}

TEST(BadTensor, Shapes) {
  ExpectInvalid([](ForwardCall& call) { call.q.abi.ndim = 3; },
                "q.ndim = 3: must be 4 [batch, q_len, num_q_heads, head_dim]");
  ExpectInvalid([](ForwardCall& call) { call.lse.abi.ndim = 0; }, "lse.ndim = 0: must be 3");
  ExpectInvalid([](ForwardCall& call) { call.k.abi.ndim = -1; }, "k.ndim = -1");
  ExpectInvalid([](ForwardCall& call) { call.q.shape[1] = -3; },
                "q.shape[1] (q_len) = -3: must not be negative");
  ExpectInvalid([](ForwardCall& call) { call.k.shape[1] = kHuge; },
                "the tensor's bytes overflow 64 bits");
  ExpectInvalid(
      [](ForwardCall& call) {
        call.q.shape[0] = std::int64_t{1} << 31;
        call.q.shape[1] = std::int64_t{1} << 31;
      },
      "q.shape[0] (batch) = 2147483648: the tensor's bytes overflow 64 bits");
}

TEST(BadTensor, ShapesThatDisagree) {
  ExpectInvalid([](ForwardCall& call) { call.k.shape[0] = 1; },
                "v.shape[0] (batch) = 2: must equal k.shape[0] (batch) = 1");
  ExpectInvalid([](ForwardCall& call) { call.k.shape[0] = call.v.shape[0] = 1; },
                "k.shape[0] (batch) = 1: must equal q.shape[0] (batch) = 2");
  ExpectInvalid([](ForwardCall& call) { call.k.shape[3] = 7; },
                "k.shape[3] (head_dim) = 7: must equal q.shape[3] (head_dim) = 8");
  ExpectInvalid([](ForwardCall& call) { call.v.shape[1] = 4; },
                "v.shape[1] (kv_len) = 4: must equal k.shape[1] (kv_len) = 5");
  ExpectInvalid([](ForwardCall& call) { call.o.shape[3] = 5; },
                "o.shape[3] (head_dim_v) = 5: must equal v.shape[3] (head_dim_v) = 6");
  ExpectInvalid([](ForwardCall& call) { call.o.shape[2] = 3; }, "o.shape[2] (num_q_heads) = 3");
  ExpectInvalid([](ForwardCall& call) { call.lse.shape[2] = 2; },
                "lse.shape[2] (q_len) = 2: must equal q.shape[1] (q_len) = 3");
}

TEST(BadTensor, Heads) {
  const auto set_kv_heads = [](ForwardCall& call, std::int64_t heads) {
    call.k.shape[2] = call.v.shape[2] = heads;
    call.k.strides[0] = call.v.strides[0] = 64;
  };
  ExpectInvalid(
      [&](ForwardCall& call) {
        call.k = OwnedTensor(kF32, {2, 5, 3, 8});
        call.v = OwnedTensor(kF32, {2, 5, 3, 6});
      },
      "k.shape[2] (num_kv_heads) = 3: must divide q.shape[2] (num_q_heads) = 4");
  ExpectInvalid([&](ForwardCall& call) { set_kv_heads(call, 0); },
                "k.shape[2] (num_kv_heads) = 0: must divide q.shape[2] (num_q_heads) = 4");
  ExpectInvalid(
      [](ForwardCall& call) { call.q.shape[2] = call.o.shape[2] = call.lse.shape[1] = 0; },
      "k.shape[2] (num_kv_heads) = 2: must divide q.shape[2] (num_q_heads) = 0");
}

TEST(BadTensor, HeadDimZero) {
  ExpectInvalid([](ForwardCall& call) { call.q.shape[3] = call.k.shape[3] = 0; },
                "q.shape[3] (head_dim) = 0: must be at least 1");
  ExpectInvalid([](ForwardCall& call) { call.v.shape[3] = call.o.shape[3] = 0; },
                "v.shape[3] (head_dim_v) = 0: must be at least 1");
}

TEST(BadTensor, Strides) {
  ExpectInvalid([](ForwardCall& call) { call.q.strides[3] = 2; },
                "q.strides[3] = 2: the head_dim axis must be contiguous");
  ExpectInvalid([](ForwardCall& call) { call.v.strides[3] = 0; },
                "v.strides[3] = 0: the head_dim_v axis must be contiguous");
  ExpectInvalid([](ForwardCall& call) { call.k.strides[1] = -16; },
                "k.strides[1] = -16: must not be negative");
  ExpectInvalid([](ForwardCall& call) { call.o.strides[0] = -1; },
                "o.strides[0] = -1: must not be negative");
  ExpectInvalid([](ForwardCall& call) { call.k.strides[0] = kHuge; },
                "k.strides[0] = 9223372036854775807: the tensor's byte offsets overflow 64 bits");
  ExpectInvalid([](ForwardCall& call) { call.k.strides[1] = kHuge / 16; },
                "the tensor's byte offsets overflow 64 bits");
}

TEST(BadTensor, OutputsThatOverlapThemselves) {
  ExpectInvalid([](ForwardCall& call) { call.o.strides[1] = 0; },
                "o.strides[1] = 0: an output must not be broadcast or overlap itself");
  ExpectInvalid([](ForwardCall& call) { call.o.strides[2] = 3; },
                "o.strides[2] = 3: an output must not be broadcast or overlap itself");
  ExpectInvalid([](ForwardCall& call) { call.lse.strides[2] = 0; }, "lse.strides[2] = 0");
}

TEST(BadTensor, DTypes) {
  ExpectInvalid([](ForwardCall& call) { call.q.abi.dtype = kI8; },
                "int8 = NULL: is required when q.dtype is i8");
  ExpectInvalid([](ForwardCall& call) { call.k.abi.dtype = kBF16; },
                "k.dtype = bf16: must equal q.dtype = f32");
  ExpectInvalid([](ForwardCall& call) { call.o.abi.dtype = kF16; },
                "o.dtype = f16: must equal q.dtype = f32");
  ExpectInvalid([](ForwardCall& call) { call.lse.abi.dtype = kF16; },
                "lse.dtype = f16: must be f32");
  ExpectInvalid(
      [](ForwardCall& call) {
        call.q.abi.dtype = {5, 64, 1};
      },
      "q.dtype = {code 5, bits 64}: is not a dtype of this library");
  ExpectInvalid([](ForwardCall& call) { call.v.abi.dtype.lanes = 4; },
                "v.dtype.lanes = 4: must be 1");
  ExpectInvalid(
      [](ForwardCall& call) {
        call.q = OwnedTensor(kF64, {2, 3, 4, 8});
        call.k = OwnedTensor(kF64, {2, 5, 2, 8});
        call.v = OwnedTensor(kF64, {2, 5, 2, 6});
        call.o = OwnedTensor(kF64, {2, 3, 4, 6}, 0xAB);
      },
      "q.dtype = f64: only the reference backend takes it");
}

TEST(BadTensor, Devices) {
  ExpectInvalid(
      [](ForwardCall& call) {
        call.k.abi.device = {HEED_DEVICE_CUDA, 1};
      },
      "k.device = cuda:1: must be cpu as q.device");
  ExpectInvalid([](ForwardCall& call) { call.o.abi.device.device_type = 99; },
                "o.device.device_type = 99: is not a heed_device_type_t");
  ExpectInvalid([](ForwardCall& call) { call.q.abi.device.device_id = 3; },
                "q.device.device_id = 3: must be 0 on the CPU");
  ExpectInvalid([](ForwardCall& call) { call.v.abi.device.device_id = -1; },
                "v.device.device_id = -1: must be 0 on the CPU");
  ExpectInvalid(
      [](ForwardCall& call) {
        call.q.abi.device = {HEED_DEVICE_CUDA, -1};
      },
      "q.device.device_id = -1: must not be negative");
  ExpectInvalid([](ForwardCall& call) { MoveTo(call, HEED_DEVICE_WEBGPU); },
                "q.device = webgpu:0: heed_webgpu_open_device gave no such device");
}

TEST(BadTensor, CudaWithoutADriverNamesTheRemedy) {
  if (HasCudaDriver()) GTEST_SKIP() << "this machine has a CUDA driver";
  for (const auto device : {HEED_DEVICE_CUDA, HEED_DEVICE_CUDA_MANAGED}) {
    for (const char* fragment : {"the CUDA backend: libcuda.so.1 ", kCudaRemedy}) {
      ExpectRefused([&](ForwardCall& call) { MoveTo(call, device); }, HEED_UNAVAILABLE, fragment);
    }
  }
}

TEST(BadTensor, Addresses) {
  ExpectInvalid([](ForwardCall& call) { call.q.abi.byte_offset = 2; },
                "must be aligned to the 4 bytes of f32");
  ExpectInvalid(
      [](ForwardCall& call) { call.k.abi.byte_offset = std::numeric_limits<std::uint64_t>::max(); },
      "the tensor runs past the address space");
}

TEST(BadTensor, OutputsThatOverlapOthers) {
  ExpectInvalid([](ForwardCall& call) { call.v.abi.data = call.o.abi.data; },
                "o: an output must not overlap v");
  ExpectInvalid([](ForwardCall& call) { call.lse.abi.data = call.q.abi.data; },
                "lse: an output must not overlap q");
  ExpectInvalid([](ForwardCall& call) { call.lse.abi.data = call.o.abi.data; },
                "o: an output must not overlap lse");
}

// q, k, v and o as slices of one [B, S, heads, D] buffer share no element.
TEST(BadTensor, SlicesOfOneBufferAreFine) {
  OwnedTensor buffer(kF32, {2, 3, 4 + 2 + 2 + 4, 8});
  const auto slice = [&buffer](OwnedTensor& tensor, std::int64_t heads, std::uint64_t first_head) {
    tensor.shape = {2, 3, heads, 8};
    tensor.strides = buffer.strides;
    tensor.abi.shape = tensor.shape.data();
    tensor.abi.strides = tensor.strides.data();
    tensor.abi.data = buffer.abi.data;
    tensor.abi.byte_offset = first_head * 8 * sizeof(float);
  };
  const auto change = [&](ForwardCall& call, std::uint64_t first_head_of_o) {
    slice(call.q, 4, 0);
    slice(call.k, 2, 4);
    slice(call.v, 2, 6);
    slice(call.o, 4, first_head_of_o);
  };
  ExpectAccepted([&](ForwardCall& call) { change(call, 8); });
  ExpectInvalid([&](ForwardCall& call) { change(call, 7); }, "o: an output must not overlap v");
}

TEST(BadTensor, ReadOnlyBroadcastsAreFine) {
  ExpectAccepted([](ForwardCall& call) { call.k.strides[1] = call.v.strides[0] = 0; });
  ExpectAccepted([](ForwardCall& call) { call.q.abi.strides = nullptr; });
}

}  // namespace
}  // namespace heed::test
