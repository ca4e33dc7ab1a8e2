// Sessions that replay steps as a CUDA graph: the same bits as without, and the time of a step. The
// times are printed, not judged: they are the machine's.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
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

struct Spread {
  double median = 0.0, p95 = 0.0, p99 = 0.0;
};

Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
  };
  return {at(0.5), at(0.95), at(0.99)};
}

constexpr int kWarmUpSteps = 50, kTimedSteps = 200;

// Microseconds between events on a stream around `work`, the stream idle before each.
template <class Work>
Spread TimeBetweenEvents(CudaStream stream, Work&& work) {
  Cuda& cuda = Cuda::Get();
  const CudaEvent begin = cuda.NewEvent(), end = cuda.NewEvent();
  std::vector<double> us;
  for (int step = 0; step < kWarmUpSteps + kTimedSteps; ++step) {
    cuda.Record(begin, stream);
    work();
    cuda.Record(end, stream);
    cuda.Wait(stream);
    if (step >= kWarmUpSteps) us.push_back(1000.0 * cuda.Milliseconds(begin, end));
  }
  cuda.Destroy(begin);
  cuda.Destroy(end);
  return SpreadOf(std::move(us));
}

struct StepTimes {
  Spread events_us;  // around append and decode
  Spread host_us;    // of the whole step, its output on the host
};

// At `tokens` tokens.
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
    for (int step = 0; step < kWarmUpSteps + kTimedSteps; ++step) {
      const auto started = std::chrono::steady_clock::now();
      cuda.Record(begin, stream);
      session.Append();
      session.Decode();
      cuda.Record(end, stream);
      session.Output();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - started;
      EXPECT_EQ(heed_session_truncate(session.get(), tokens - 1), HEED_OK);
      if (step < kWarmUpSteps) continue;
      events_us.push_back(1000.0 * cuda.Milliseconds(begin, end));
      host_us.push_back(took.count());
    }
  }
  cuda.Destroy(begin);
  cuda.Destroy(end);
  cuda.Destroy(stream);
  return {SpreadOf(std::move(events_us)), SpreadOf(std::move(host_us))};
}

std::string Json(const char* name, const Spread& spread) {
  char text[160];
  std::snprintf(text, sizeof text, "\"%s\": {\"median\": %.2f, \"p95\": %.2f, \"p99\": %.2f}", name,
                spread.median, spread.p95, spread.p99);
  return text;
}

// What no step can be faster than by this way of measuring: events around nothing, and around a
// copy of as many bytes.
std::string TimesWithoutASession(std::size_t step_bytes) {
  Cuda& cuda = Cuda::Get();
  const CudaStream stream = cuda.NewStream();
  const std::uint64_t block = cuda.Allocate(step_bytes);
  void* const pinned = cuda.AllocatePinned(step_bytes);
  const Spread nothing = TimeBetweenEvents(stream, [] {});
  const Spread copy =
      TimeBetweenEvents(stream, [&] { cuda.CopyAsync(block, pinned, step_bytes, stream); });
  cuda.FreePinned(pinned);
  cuda.Free(block);
  cuda.Destroy(stream);
  std::printf("between events: %.1f us around nothing, %.1f around a copy of %zu bytes\n",
              nothing.median, copy.median, step_bytes);
  return "{\"bytes\": " + std::to_string(step_bytes) + ", " + Json("nothing_us", nothing) + ", " +
         Json("copy_us", copy) + "}";
}

// HEED_SESSION_STEP_JSON names a file to write, for bench/results.
TEST(GpuSessionGraph, PrintsTheTimeOfAStep) {
  constexpr std::size_t kStepBytes = std::size_t{3} * 14 * 64 * 2;
  std::string json = "{\n \"copy\": " + TimesWithoutASession(kStepBytes) + ",\n \"steps\": [";
  const char* separator = "\n  ";
  for (const Shape& shape :
       {Shape{1, 9, 9, 64}, Shape{1, 14, 14, 64}, Shape{1, 14, 2, 64}, Shape{1, 12, 12, 128}}) {
    for (const std::int64_t tokens : {64, 1024, 2048}) {
      const StepTimes plain = TimeSteps(shape, tokens, HEED_OFF);
      const StepTimes replayed = TimeSteps(shape, tokens, HEED_ON);
      std::printf(
          "step of %lld/%lld heads x %lld, %lld tokens: %.1f us between events, %.1f as a "
          "graph; with its output on the host %.1f us, %.1f as a graph\n",
          static_cast<long long>(shape.num_q_heads), static_cast<long long>(shape.num_kv_heads),
          static_cast<long long>(shape.head_dim), static_cast<long long>(tokens),
          plain.events_us.median, replayed.events_us.median, plain.host_us.median,
          replayed.host_us.median);
      EXPECT_GT(replayed.events_us.median, 0.0);
      json += separator;
      json += "{\"num_q_heads\": " + std::to_string(shape.num_q_heads) +
              ", \"num_kv_heads\": " + std::to_string(shape.num_kv_heads) +
              ", \"head_dim\": " + std::to_string(shape.head_dim) +
              ", \"tokens\": " + std::to_string(tokens) + ",\n   " +
              Json("events_us", plain.events_us) + ", " + Json("host_us", plain.host_us) +
              ",\n   " + Json("graph_events_us", replayed.events_us) + ", " +
              Json("graph_host_us", replayed.host_us) + "}";
      separator = ",\n  ";
    }
  }
  const char* path = std::getenv("HEED_SESSION_STEP_JSON");
  if (path == nullptr) return;
  std::FILE* file = std::fopen(path, "w");
  ASSERT_NE(file, nullptr) << path;
  std::fprintf(file, "%s\n ]\n}\n", json.c_str());
  EXPECT_EQ(std::fclose(file), 0);
}

}  // namespace
}  // namespace heed::test
