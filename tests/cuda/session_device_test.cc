// The host side of a session on a GPU, with a driver whose memory is the host's: what is copied
// where, what is refused, and that nothing is left behind.
#include "core/session_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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
      void* inputs = nullptr;
      ASSERT_TRUE(device->Upload(step, &inputs).ok());
      EXPECT_EQ(inputs, block);
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

// Large steps are copied on a stream of their own, which waits for the session's and is waited for.
TEST(CudaSessionDevice, CopiesLargeStepsAhead) {
  {
    std::unique_ptr<core::SessionDevice> device;
    ASSERT_TRUE(cuda::MakeSessionDevice(Exec(), &device).ok());
    constexpr std::size_t kSmallBytes = 4096, kLargeBytes = 2 << 20;
    EXPECT_FALSE(device->UploadsAhead(kSmallBytes));
    EXPECT_TRUE(device->UploadsAhead(kLargeBytes));
    void* blocks[2] = {};
    for (void*& block : blocks) ASSERT_TRUE(device->Allocate(kLargeBytes, &block).ok());
    const long long handles_before = NumFakeHandles();
    for (int at = 0; at < 5; ++at) {
      for (const std::size_t size_bytes : {kSmallBytes, kLargeBytes}) {
        const std::vector<float> rows(16, static_cast<float>(at));
        TensorInfo info = InfoOf("q", const_cast<float*>(rows.data()), DType::kF32, {1, 1, 1, 16});
        core::SessionStep step;
        step.block = blocks[at % 2];
        step.size_bytes = size_bytes;
        step.dtype = DType::kF32;
        step.num_sequences = 1;
        step.rows = {{{&info, 512}, {&info, 1024}, {&info, 1536}}};
        step.lengths = {{{0, 0}, {1, 256}}};
        const long long waits_before = NumFakeStreamWaits();
        void* inputs = nullptr;
        ASSERT_TRUE(device->Upload(step, &inputs).ok());
        EXPECT_EQ(NumFakeStreamWaits(), waits_before + (size_bytes == kLargeBytes ? 2 : 0));
        EXPECT_EQ(std::memcmp(static_cast<char*>(step.block) + 1536, rows.data(), 64), 0);
      }
    }
    EXPECT_EQ(NumFakeHandles(), handles_before + 7) << "a stream, two marks, an event a staging";
  }
  EXPECT_EQ(NumFakeHandles(), 0);
}

// Small steps that kernels read once stay where they were packed: in turn, and each until its mark.
TEST(CudaSessionDevice, LeavesStepsOnTheHost) {
  {
    std::unique_ptr<core::SessionDevice> device;
    ASSERT_TRUE(cuda::MakeSessionDevice(Exec(), &device).ok());
    void* block = nullptr;
    ASSERT_TRUE(device->Allocate(1 << 18, &block).ok());
    std::vector<float> rows(16, 3.0f);
    TensorInfo info = InfoOf("q", rows.data(), DType::kF32, {1, 1, 1, 16});
    TensorInfo on_device = info;
    on_device.device = {HEED_DEVICE_CUDA, 0};
    core::SessionStep step;
    step.block = block;
    step.size_bytes = 4096;
    step.dtype = DType::kF32;
    step.num_sequences = 1;
    step.rows = {{{&info, 512}, {&info, 1024}, {&info, 1536}}};
    step.lengths = {{{5, 0}, {6, 256}}};
    step.may_stay = true;
    void* former = block;
    for (int at = 0; at < 9; ++at) {
      rows[0] = static_cast<float>(at);
      void* inputs = nullptr;
      ASSERT_TRUE(device->Upload(step, &inputs).ok());
      EXPECT_NE(inputs, block);
      EXPECT_NE(inputs, former) << "which may still be read";
      EXPECT_EQ(std::memcmp(static_cast<char*>(inputs) + 1024, rows.data(), 64), 0);
      EXPECT_EQ(static_cast<std::int32_t*>(inputs)[64], 6);
      EXPECT_TRUE(device->MarkRead().ok());
      former = inputs;
    }
    const auto is_copied = [&] {
      void* inputs = nullptr;
      EXPECT_TRUE(device->Upload(step, &inputs).ok());
      EXPECT_TRUE(device->MarkRead().ok());
      return inputs == block;
    };
    EXPECT_FALSE(is_copied());
    step.size_bytes = 65 << 10;
    EXPECT_TRUE(is_copied()) << "much to read";
    step.size_bytes = 4096;
    step.rows[2].source = &on_device;
    EXPECT_TRUE(is_copied()) << "from two places";
    step.rows[2].source = &info;
    step.may_stay = false;
    EXPECT_TRUE(is_copied()) << "read often";
  }
  EXPECT_EQ(NumFakeHandles(), 0);
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
class FakeSession {
 public:
  explicit FakeSession(heed_toggle_t use_graph) {
    heed_session_config_t config = HEED_SESSION_CONFIG_INIT;
    config.device = {HEED_DEVICE_CUDA, 0};
    config.num_sequences = 2;
    config.num_q_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = config.head_dim_v = 64;
    config.capacity_tokens = 100;
    config.dtype = {HEED_DTYPE_FLOAT, 16, 1};
    config.use_graph = use_graph;
    created_ = heed_session_create(&config, &session_);
  }
  ~FakeSession() { EXPECT_EQ(heed_session_destroy(session_), HEED_OK); }
  FakeSession(const FakeSession&) = delete;
  FakeSession& operator=(const FakeSession&) = delete;

  heed_status_t created() const { return created_; }
  heed_session_t* get() const { return session_; }

  void Append(std::int64_t tokens) {
    const heed_tensor_t q = Rows(tokens, 4), kv = Rows(tokens, 2);
    ASSERT_EQ(heed_session_append(session_, &q, &kv, &kv), HEED_OK) << heed_last_error();
  }
  void Decode() { ASSERT_EQ(heed_session_decode(session_), HEED_OK) << heed_last_error(); }
  void Output(std::int64_t tokens) {
    const heed_tensor_t o = Rows(tokens, 4);
    ASSERT_EQ(heed_session_output(session_, &o), HEED_OK) << heed_last_error();
  }

 private:
  // Valid until the next two calls.
  heed_tensor_t Rows(std::int64_t tokens, std::int64_t heads) {
    auto& shape = shapes_[next_shape_++ % shapes_.size()];
    shape = {2, tokens, heads, 64};
    rows_.resize(std::max<std::size_t>(rows_.size(), static_cast<std::size_t>(2 * tokens * 4 * 64)),
                 0.5f);
    return {
        rows_.data(), {HEED_DEVICE_CPU, 0}, 4, {HEED_DTYPE_FLOAT, 32, 1}, shape.data(), nullptr, 0};
  }

  heed_session_t* session_ = nullptr;
  heed_status_t created_ = HEED_OK;
  std::vector<float> rows_ = std::vector<float>(2 * 16 * 4 * 64, 0.5f);
  std::array<std::array<std::int64_t, 4>, 3> shapes_ = {};
  std::size_t next_shape_ = 0;
};

TEST(CudaSession, RunsOverTheDriver) {
  const long long handles_before = NumFakeHandles();
  {
    FakeSession session(HEED_OFF);
    if (session.created() == HEED_UNAVAILABLE) GTEST_SKIP() << heed_last_error();
    ASSERT_EQ(session.created(), HEED_OK) << heed_last_error();
    const long long graphs_before = NumFakeGraphLaunches();
    for (int step = 0; step < 3; ++step) {
      const long long launches_before = NumFakeLaunches();
      session.Append(3);
      EXPECT_EQ(NumFakeLaunches(), launches_before);
      session.Decode();
      EXPECT_EQ(NumFakeLaunches(), launches_before + 2) << "append, attend";
      session.Output(3);
    }
    EXPECT_EQ(heed_session_truncate(session.get(), 2), HEED_OK);
    EXPECT_EQ(NumFakeGraphLaunches(), graphs_before) << "nobody asked for one";
  }
  EXPECT_EQ(NumFakeHandles(), handles_before);
}

// A step's two kernels go as one graph from the second step of a kind on; a prompt, a decode call
// without an append and a flush go as they are.
TEST(CudaSession, ReplaysStepsAsGraphs) {
  const long long handles_before = NumFakeHandles();
  {
    FakeSession session(HEED_ON);
    if (session.created() == HEED_UNAVAILABLE) GTEST_SKIP() << heed_last_error();
    ASSERT_EQ(session.created(), HEED_OK) << heed_last_error();
    struct Step {
      std::int64_t tokens;
      bool is_graph;
    };
    for (const Step& step : {Step{9, false}, Step{1, false}, Step{1, true}, Step{1, true},
                             Step{4, false}, Step{4, true}, Step{1, false}, Step{1, true},
                             Step{16, false}, Step{1, false}, Step{1, true}}) {
      SCOPED_TRACE(step.tokens);
      const long long launches_before = NumFakeLaunches();
      const long long graphs_before = NumFakeGraphLaunches();
      session.Append(step.tokens);
      session.Decode();
      EXPECT_EQ(NumFakeLaunches(), launches_before + (step.tokens == 1 ? 1 : 2))
          << "one token is appended and attended to by one kernel";
      EXPECT_EQ(NumFakeGraphLaunches(), graphs_before + (step.is_graph ? 1 : 0));
      session.Output(step.tokens);
    }
    const long long graphs_before = NumFakeGraphLaunches();
    session.Decode();
    EXPECT_EQ(NumFakeGraphLaunches(), graphs_before) << "nothing to append";
    session.Append(1);
    session.Append(1);
    EXPECT_EQ(NumFakeGraphLaunches(), graphs_before) << "a flush";
    session.Decode();
    EXPECT_EQ(NumFakeGraphLaunches(), graphs_before + 1);
    heed_session_info_t info = HEED_SESSION_INFO_INIT;
    ASSERT_EQ(heed_session_query(session.get(), &info), HEED_OK);
    EXPECT_EQ(info.length_tokens, 42);
  }
  EXPECT_EQ(NumFakeHandles(), handles_before) << "the graph is gone too";
}

}  // namespace
}  // namespace heed::test
