// Sessions that replay steps as a CUDA graph: the same bits as without, and the time of a step. The
// times are printed, not judged: they are the machine's.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "gpu/cuda.h"
#include "heed/heed.h"
#include "support/random.h"

namespace heed::test {
namespace {

struct Shape {
  std::int64_t num_sequences, num_q_heads, num_kv_heads, head_dim;
  heed_kv_format_t format = HEED_KV_PLAIN;
};

// A session in bf16 on the GPU, and the host rows of its next step.
class GpuSession {
 public:
  GpuSession(const Shape& shape, heed_toggle_t use_graph, CudaStream stream = nullptr)
      : shape_(shape) {
    heed_session_config_t config = HEED_SESSION_CONFIG_INIT;
    heed_score_args_t score = HEED_SCORE_ARGS_INIT;
    heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
    score.causal = HEED_CAUSAL_ON;
    exec.stream = stream;
    config.device = {HEED_DEVICE_CUDA, 0};
    config.num_sequences = shape.num_sequences;
    config.num_q_heads = shape.num_q_heads;
    config.num_kv_heads = shape.num_kv_heads;
    config.head_dim = config.head_dim_v = shape.head_dim;
    config.capacity_tokens = 2048;
    config.dtype = {HEED_DTYPE_BFLOAT, 16, 1};
    config.kv_format = shape.format;
    config.use_graph = use_graph;
    config.score = &score;
    config.exec = &exec;
    EXPECT_EQ(heed_session_create(&config, &session_), HEED_OK) << heed_last_error();
  }
  ~GpuSession() { EXPECT_EQ(heed_session_destroy(session_), HEED_OK); }
  GpuSession(const GpuSession&) = delete;
  GpuSession& operator=(const GpuSession&) = delete;

  heed_session_t* get() const { return session_; }

  // Rows of a step, the same for equal seeds.
  void Fill(std::int64_t tokens, std::uint64_t seed) {
    Random random(seed, "session steps");
    tokens_ = tokens;
    for (const auto& [rows, heads] :
         {std::pair{&q_, shape_.num_q_heads}, std::pair{&k_, shape_.num_kv_heads},
          std::pair{&v_, shape_.num_kv_heads}}) {
      rows->resize(
          static_cast<std::size_t>(shape_.num_sequences * tokens * heads * shape_.head_dim));
      for (float& value : *rows) value = static_cast<float>(random.Normal());
    }
    o_.assign(q_.size(), -1.0f);
  }
  void Append() {
    std::int64_t q_shape[4], kv_shape[4];
    const heed_tensor_t q = Rows(&q_, shape_.num_q_heads, q_shape);
    const heed_tensor_t k = Rows(&k_, shape_.num_kv_heads, kv_shape);
    const heed_tensor_t v = Rows(&v_, shape_.num_kv_heads, kv_shape);
    ASSERT_EQ(heed_session_append(session_, &q, &k, &v), HEED_OK) << heed_last_error();
  }
  void Decode() { ASSERT_EQ(heed_session_decode(session_), HEED_OK) << heed_last_error(); }
  const std::vector<float>& Output() {
    std::int64_t shape[4];
    const heed_tensor_t o = Rows(&o_, shape_.num_q_heads, shape);
    EXPECT_EQ(heed_session_output(session_, &o), HEED_OK) << heed_last_error();
    return o_;
  }

 private:
  heed_tensor_t Rows(std::vector<float>* rows, std::int64_t heads, std::int64_t (&shape)[4]) const {
    shape[0] = shape_.num_sequences;
    shape[1] = tokens_;
    shape[2] = heads;
    shape[3] = shape_.head_dim;
    return {rows->data(), {HEED_DEVICE_CPU, 0}, 4, {HEED_DTYPE_FLOAT, 32, 1}, shape, nullptr, 0};
  }

  const Shape shape_;
  heed_session_t* session_ = nullptr;
  std::int64_t tokens_ = 0;
  std::vector<float> q_, k_, v_, o_;
};

// Prompts, runs of equal steps that are recorded, changes between them, steps whose output nobody
// fetches, appends that are flushed, and a truncation.
TEST(GpuSessionGraph, ReplaysGiveTheSameBits) {
  for (const Shape& shape : {Shape{1, 14, 14, 64}, Shape{3, 8, 2, 128}, Shape{1, 8, 2, 128},
                             Shape{2, 4, 2, 64, HEED_KV_INT8}}) {
    SCOPED_TRACE(shape.num_q_heads);
    GpuSession plain(shape, HEED_OFF), replayed(shape, HEED_ON);
    std::uint64_t seed = 1;
    for (const std::int64_t tokens : {33, 1, 1, 1, 1, 4, 4, 4, 1, 1, 1, 300, 1, 1, 1, 1, 1}) {
      ++seed;
      for (GpuSession* session : {&plain, &replayed}) {
        session->Fill(tokens, seed);
        session->Append();
        if (seed % 5 == 0) session->Append();
        session->Decode();
      }
      if (seed % 4 == 0) continue;
      ASSERT_EQ(plain.Output(), replayed.Output()) << "step " << seed;
      if (seed == 12) {
        for (GpuSession* session : {&plain, &replayed}) {
          ASSERT_EQ(heed_session_truncate(session->get(), 17), HEED_OK) << heed_last_error();
        }
      }
    }
    ASSERT_EQ(plain.Output(), replayed.Output());
  }
}

// Chunks of a prompt that are copied while the ones before are attended to: as with a wait after
// every call.
TEST(GpuSessionGraph, ChunksCopiedAheadGiveTheSameBits) {
  for (const Shape& shape : {Shape{1, 14, 14, 64}, Shape{2, 8, 8, 128}}) {
    SCOPED_TRACE(shape.num_q_heads);
    GpuSession ahead(shape, HEED_OFF), waiting(shape, HEED_OFF);
    for (GpuSession* session : {&ahead, &waiting}) {
      for (std::uint64_t chunk = 0; chunk < 6; ++chunk) {
        session->Fill(330, chunk);  // 1.8 MB and more
        session->Append();
        if (session == &waiting) {
          ASSERT_EQ(heed_session_synchronize(session->get()), HEED_OK) << heed_last_error();
        }
        if (chunk % 3 != 1) session->Decode();
        if (session == &waiting) {
          ASSERT_EQ(heed_session_synchronize(session->get()), HEED_OK) << heed_last_error();
        }
      }
    }
    ASSERT_EQ(ahead.Output(), waiting.Output());
  }
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct StepTimes {
  double events_us = 0.0;  // around append and decode
  double host_us = 0.0;    // of the whole step, its output on the host
};

// 50 steps before 200 that are timed, at `tokens` tokens.
StepTimes TimeSteps(const Shape& shape, std::int64_t tokens, heed_toggle_t use_graph) {
  Cuda& cuda = Cuda::Get();
  const CudaStream stream = cuda.NewStream();
  const CudaEvent begin = cuda.NewEvent(), end = cuda.NewEvent();
  std::vector<double> events_us, host_us;
  {
    GpuSession session(shape, use_graph, stream);
    session.Fill(tokens - 1, 1);
    session.Append();
    session.Fill(1, 2);
    for (int step = 0; step < 250; ++step) {
      const auto started = std::chrono::steady_clock::now();
      cuda.Record(begin, stream);
      session.Append();
      session.Decode();
      cuda.Record(end, stream);
      session.Output();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - started;
      EXPECT_EQ(heed_session_truncate(session.get(), tokens - 1), HEED_OK);
      if (step < 50) continue;
      events_us.push_back(1000.0 * cuda.Milliseconds(begin, end));
      host_us.push_back(took.count());
    }
  }
  cuda.Destroy(begin);
  cuda.Destroy(end);
  cuda.Destroy(stream);
  return {Median(events_us), Median(host_us)};
}

TEST(GpuSessionGraph, PrintsTheTimeOfAStep) {
  for (const Shape& shape :
       {Shape{1, 9, 9, 64}, Shape{1, 14, 14, 64}, Shape{1, 14, 2, 64}, Shape{1, 12, 12, 128}}) {
    for (const std::int64_t tokens : {64, 1024, 2048}) {
      const StepTimes plain = TimeSteps(shape, tokens, HEED_OFF);
      const StepTimes replayed = TimeSteps(shape, tokens, HEED_ON);
      std::printf(
          "step of %lld/%lld heads x %lld, %lld tokens: %.1f us between events, %.1f as a "
          "graph; with its output on the host %.1f us, %.1f as a graph\n",
          static_cast<long long>(shape.num_q_heads), static_cast<long long>(shape.num_kv_heads),
          static_cast<long long>(shape.head_dim), static_cast<long long>(tokens), plain.events_us,
          replayed.events_us, plain.host_us, replayed.host_us);
      EXPECT_GT(replayed.events_us, 0.0);
    }
  }
}

}  // namespace
}  // namespace heed::test
