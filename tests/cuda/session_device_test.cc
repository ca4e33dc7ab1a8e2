// The host side of a session on a GPU, with a driver whose memory is the host's: what is copied
// where, what is refused, and that nothing is left behind.
#include "core/session_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cuda/backend.h"
#include "cuda/fake_driver/fake_driver.h"

namespace heed::test {
namespace {

using core::DType;
using core::TensorInfo;

constexpr core::AxisNames kRows = {4, {"batch", "new_tokens", "heads", "head_dim"}};

TensorInfo InfoOf(const char* name, void* data, DType dtype, std::array<std::int64_t, 4> shape) {
  TensorInfo info;
  info.name = name;
  info.axes = &kRows;
  info.data = data;
  info.dtype = dtype;
  info.device = {HEED_DEVICE_CPU, 0};
  info.rank = 4;
  std::int64_t stride_elems = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    info.shape[axis] = shape[axis];
    info.stride_elems[axis] = stride_elems;
    stride_elems *= shape[axis];
  }
  return info;
}

core::ExecOptions Exec() {
  core::ExecOptions exec;
  exec.backend = HEED_BACKEND_CUDA;
  exec.device = {HEED_DEVICE_CUDA, 0};
  return exec;
}

TEST(CudaSessionDevice, CopiesStepsAndOutputs) {
  {
    std::unique_ptr<core::SessionDevice> device;
    ASSERT_TRUE(cuda::MakeSessionDevice(Exec(), &device).ok());
    EXPECT_NE(device->stream(), nullptr);
    void* block = nullptr;
    ASSERT_TRUE(device->Allocate(1 << 16, &block).ok());
    // More steps than there are staging buffers, of growing sizes.
    for (std::int64_t tokens = 1; tokens < 12; ++tokens) {
      std::vector<float> q(static_cast<std::size_t>(tokens * 8)), v(q.size());
      for (std::size_t n = 0; n < q.size(); ++n) {
        q[n] = static_cast<float>(n) + static_cast<float>(tokens);
        v[n] = -q[n];
      }
      TensorInfo q_info = InfoOf("q", q.data(), DType::kF32, {2, tokens, 1, 4});
      TensorInfo k_info = q_info;
      k_info.device = {HEED_DEVICE_CUDA, 0};
      TensorInfo v_info = InfoOf("v", v.data(), DType::kF32, {2, tokens, 1, 4});
      const std::size_t bytes = q.size() * sizeof(float);
      core::SessionStep step;
      step.block = block;
      step.size_bytes = 512 + 3 * bytes;
      step.dtype = DType::kF32;
      step.num_sequences = 2;
      step.rows = {{{&q_info, 512}, {&k_info, 512 + bytes}, {&v_info, 512 + 2 * bytes}}};
      step.lengths = {{{7, 0}, {7 + static_cast<std::int32_t>(tokens), 256}}};
      ASSERT_TRUE(device->Upload(step).ok());
      const auto* data = static_cast<const char*>(block);
      EXPECT_EQ(std::memcmp(data + 512, q.data(), bytes), 0);
      EXPECT_EQ(std::memcmp(data + 512 + bytes, q.data(), bytes), 0) << "from device memory";
      EXPECT_EQ(std::memcmp(data + 512 + 2 * bytes, v.data(), bytes), 0);
      const auto* lengths = reinterpret_cast<const std::int32_t*>(data);
      EXPECT_EQ(lengths[0] + lengths[1], 14);
      EXPECT_EQ(lengths[64] + lengths[65], 14 + 2 * tokens);
      std::vector<float> o(q.size());
      ASSERT_TRUE(device
                      ->Download(data + 512, DType::kF32,
                                 InfoOf("o", o.data(), DType::kF32, {2, tokens, 1, 4}))
                      .ok());
      EXPECT_EQ(o, q);
    }
    EXPECT_TRUE(device->Synchronize().ok());
    EXPECT_TRUE(device->Release(block).ok());
    EXPECT_EQ(device->Release(block).code(), HEED_INTERNAL);
    EXPECT_GT(NumFakeHandles(), 0);
  }
  EXPECT_EQ(NumFakeHandles(), 0) << "streams and events";
}

TEST(CudaSessionDevice, ChecksTensors) {
  std::unique_ptr<core::SessionDevice> device;
  ASSERT_TRUE(cuda::MakeSessionDevice(Exec(), &device).ok());
  float data[64] = {};
  TensorInfo rows = InfoOf("q", data, DType::kF32, {1, 2, 4, 8});
  EXPECT_TRUE(device->CheckTensor(rows, DType::kF16).ok()) << "on the host";
  rows.device = {HEED_DEVICE_CUDA, 1};
  EXPECT_EQ(device->CheckTensor(rows, DType::kF32).message(),
            "q.device = cuda:1: must be on the host or on cuda:0 as the session");
  rows.device.device_id = 0;
  EXPECT_TRUE(device->CheckTensor(rows, DType::kF32).ok());
  EXPECT_EQ(device->CheckTensor(rows, DType::kF16).code(), HEED_UNSUPPORTED);
  rows.stride_elems[1] = 0;
  EXPECT_EQ(device->CheckTensor(rows, DType::kF32).code(), HEED_UNSUPPORTED);
}

// Append, decode and output through the C interface; the fake GPU computes nothing.
TEST(CudaSession, RunsOverTheDriver) {
  const long long handles_before = NumFakeHandles();
  heed_session_config_t config = HEED_SESSION_CONFIG_INIT;
  config.device = {HEED_DEVICE_CUDA, 0};
  config.num_sequences = 2;
  config.num_q_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = config.head_dim_v = 64;
  config.capacity_tokens = 100;
  config.dtype = {HEED_DTYPE_FLOAT, 16, 1};
  heed_session_t* session = nullptr;
  const heed_status_t created = heed_session_create(&config, &session);
  if (created == HEED_UNAVAILABLE) GTEST_SKIP() << heed_last_error();
  ASSERT_EQ(created, HEED_OK) << heed_last_error();
  std::vector<float> rows(2 * 3 * 4 * 64, 0.5f);
  std::int64_t q_shape[] = {2, 3, 4, 64}, kv_shape[] = {2, 3, 2, 64};
  const heed_tensor_t q = {
      rows.data(), {HEED_DEVICE_CPU, 0}, 4, {HEED_DTYPE_FLOAT, 32, 1}, q_shape, nullptr, 0};
  heed_tensor_t kv = q;
  kv.shape = kv_shape;
  for (int step = 0; step < 3; ++step) {
    const long long launches_before = NumFakeLaunches();
    ASSERT_EQ(heed_session_append(session, &q, &kv, &kv), HEED_OK) << heed_last_error();
    EXPECT_EQ(NumFakeLaunches(), launches_before);
    ASSERT_EQ(heed_session_decode(session), HEED_OK) << heed_last_error();
    EXPECT_EQ(NumFakeLaunches(), launches_before + 2) << "append, attend";
    ASSERT_EQ(heed_session_output(session, &q), HEED_OK) << heed_last_error();
  }
  EXPECT_EQ(heed_session_truncate(session, 2), HEED_OK);
  EXPECT_EQ(heed_session_destroy(session), HEED_OK);
  EXPECT_EQ(NumFakeHandles(), handles_before);
}

}  // namespace
}  // namespace heed::test
