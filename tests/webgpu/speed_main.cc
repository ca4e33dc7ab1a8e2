// webgpu_speed [L [ROUNDS]]: device time of the forward and backward shaders (16 heads, fp32, no
// mask) beside the plain forward shader, a plainly tiled matrix product, and attention that writes
// its scores to memory, interleaved rounds, medians, as JSON on stdout. Times are those of the
// device's clock: transfers do not count.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/problem.h"
#include "device/float16.h"
#include "webgpu/backward_slice.h"
#include "webgpu/device.h"
#include "webgpu/forward_slice.h"
#include "webgpu/peer_shaders.h"
#include "webgpu/self_check.h"
#include "webgpu/shader_source.h"
#include "webgpu/unit_chunks.h"

namespace heed::test {
namespace {

using webgpu::Device;
using webgpu::Dispatch;
using webgpu::Shader;

constexpr std::int64_t kHeads = 16;
constexpr std::chrono::milliseconds kWarmUp{1000};

void Check(const core::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "webgpu_speed: %s\n", status.message().c_str());
  std::exit(1);
}

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "webgpu_speed: %s\n", what);
  std::exit(1);
}

// Between -1 and 1, the same on every run.
std::vector<std::uint32_t> Numbers(std::size_t count, std::uint32_t seed) {
  std::vector<std::uint32_t> words(count);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::uint32_t& word : words) {
    state = state * 1664525u + 1013904223u;
    word = device::BitsOfFp32(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
  }
  return words;
}

Dispatch EmptyDispatch() {
  Dispatch dispatch;
  for (auto& words : dispatch.storage) words.assign(4, 0);
  return dispatch;
}

double Median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

class Matmul {
 public:
  explicit Matmul(Device* device)
      : device_(device),
        size_(device->adapter().is_software ? 256 : 4096),
        dispatch_(EmptyDispatch()) {
    dispatch_.uniform = {size_, 0, 0, 0};
    dispatch_.storage[0] = Numbers(std::size_t{size_} * size_, 1);
    dispatch_.storage[1] = Numbers(std::size_t{size_} * size_, 2);
    dispatch_.storage[2].resize(std::size_t{size_} * size_);
    dispatch_.is_output[2] = true;
    dispatch_.num_workgroups = (size_ / 64) * (size_ / 64);
  }
  double Seconds() {
    Check(device_->Run({"matmul", kMatmulShader, "matmul"}, &dispatch_));
    return dispatch_.device_seconds;
  }
  bool IsRight() const {
    constexpr std::size_t kRow = 77, kColumn = 234;
    double sum = 0.0;
    for (std::size_t k = 0; k < size_; ++k) {
      sum += static_cast<double>(device::Fp32OfBits(dispatch_.storage[0][kRow * size_ + k])) *
             static_cast<double>(device::Fp32OfBits(dispatch_.storage[1][k * size_ + kColumn]));
    }
    return std::fabs(sum - static_cast<double>(device::Fp32OfBits(
                               dispatch_.storage[2][kRow * size_ + kColumn]))) < 1e-3;
  }
  double Flops() const { return 2.0 * size_ * size_ * size_; }

 private:
  Device* device_;
  std::uint32_t size_;
  Dispatch dispatch_;
};

struct Attention {
  std::int64_t len, dim;
  std::vector<std::uint32_t> q, k, v;  // [head][row][dim]

  Attention(std::int64_t rows, std::int64_t head_dim)
      : len(rows),
        dim(head_dim),
        q(Numbers(static_cast<std::size_t>(kHeads * rows * head_dim), 3)),
        k(Numbers(static_cast<std::size_t>(kHeads * rows * head_dim), 4)),
        v(Numbers(static_cast<std::size_t>(kHeads * rows * head_dim), 5)) {}
  double Flops() const {
    return 4.0 * kHeads * static_cast<double>(len) * static_cast<double>(len) *
           static_cast<double>(dim);
  }
};

core::RowsView ViewOf(const std::vector<std::uint32_t>& words, const Attention& attention) {
  return {const_cast<std::uint32_t*>(words.data()), core::DType::kF32, 0, attention.dim,
          attention.len * attention.dim};
}

core::ForwardProblem ProblemOf(const Attention& attention) {
  core::ForwardProblem problem;
  core::Shape& shape = problem.shape;
  shape.batch = 1;
  shape.num_q_heads = shape.num_kv_heads = kHeads;
  shape.max_q_len = shape.max_kv_len = attention.len;
  shape.head_dim = shape.head_dim_v = attention.dim;
  problem.score.scale = 1.0 / std::sqrt(static_cast<double>(attention.dim));
  problem.q = ViewOf(attention.q, attention);
  problem.k = ViewOf(attention.k, attention);
  problem.v = ViewOf(attention.v, attention);
  problem.o.dtype = core::DType::kF32;
  return problem;
}

webgpu::UnitChunks ChunksOf(const core::ForwardProblem& problem, webgpu::UnitPass pass) {
  webgpu::UnitChunks chunks;
  Check(webgpu::ChooseUnitChunks(
      problem, pass, {webgpu::kMaxBindingBytes, webgpu::MaxLoopRounds(false)}, &chunks));
  return chunks;
}

// All heads in one dispatch.
template <class Slice>
Dispatch* Pack(const core::ForwardProblem& problem, Slice* slice) {
  const std::int64_t len = problem.shape.max_q_len;
  for (std::int64_t head = 0; head < kHeads; ++head) {
    const webgpu::Unit unit = {0, problem.SequenceAt(0), head, 0, len, 0, len};
    Require(slice->Fits(unit), "L is too large for one dispatch");
    slice->Add(unit);
  }
  return slice->Finish();
}

class Forward {
 public:
  Forward(Device* device, const Attention& attention)
      : device_(device),
        problem_(ProblemOf(attention)),
        chunks_(ChunksOf(problem_, webgpu::UnitPass::kForward)) {
    slice_ = std::make_unique<webgpu::ForwardSlice>(problem_, chunks_, webgpu::kMaxBindingBytes,
                                                    webgpu::KeyRows(problem_));
    dispatch_ = Pack(problem_, slice_.get());
    const webgpu::ForwardVariant plain = {core::DType::kF32, slice_->columns(),
                                          webgpu::Output::kStored};
    plain_shader_ = webgpu::ForwardShader(plain);
    Check(webgpu::ChooseForwardShader(device, plain, &shader_));
  }
  double PlainSeconds() { return SecondsOf(plain_shader_); }
  double Seconds() { return SecondsOf(shader_); }
  const std::string& label() const { return shader_.label; }
  const std::uint32_t* FirstHead() const { return slice_->OutputRow(0, 0, 0); }
  const webgpu::ForwardSlice& results() const { return *slice_; }

 private:
  Device* device_;
  core::ForwardProblem problem_;
  webgpu::UnitChunks chunks_;
  std::unique_ptr<webgpu::ForwardSlice> slice_;
  Dispatch* dispatch_ = nullptr;
  Shader shader_, plain_shader_;

  double SecondsOf(const Shader& shader) {
    Check(device_->Run(shader, dispatch_));
    return dispatch_->device_seconds;
  }
};

// dO is q; o and lse are those of the forward pass.
class Backward {
 public:
  Backward(Device* device, const Attention& attention, const webgpu::ForwardSlice& results)
      : device_(device), lse_(static_cast<std::size_t>(kHeads * attention.len)) {
    core::ForwardProblem& forward = problem_.forward = ProblemOf(attention);
    for (std::int64_t head = 0; head < kHeads; ++head) {
      const std::uint32_t* rows = results.OutputRow(static_cast<std::size_t>(head), 0, 0);
      o_.insert(o_.end(), rows, rows + attention.len * attention.dim);
      for (std::int64_t row = 0; row < attention.len; ++row) {
        lse_[static_cast<std::size_t>(head * attention.len + row)] =
            results.Lse(static_cast<std::size_t>(head), row, 0);
      }
    }
    forward.o = ViewOf(o_, attention);
    forward.lse = {lse_.data(), core::DType::kF32, 0, attention.len, 1};
    problem_.d_o = forward.q;
    chunks_ = ChunksOf(forward, webgpu::UnitPass::kBackward);
    slice_ = std::make_unique<webgpu::BackwardSlice>(problem_, chunks_, webgpu::kMaxBindingBytes);
    dispatch_ = Pack(forward, slice_.get());
    shader_ = webgpu::BackwardShader(core::DType::kF32, slice_->columns());
  }
  double Seconds() {
    Check(device_->Run(shader_, dispatch_));
    return dispatch_->device_seconds;
  }

 private:
  Device* device_;
  core::BackwardProblem problem_;
  std::vector<std::uint32_t> o_;
  std::vector<float> lse_;
  webgpu::UnitChunks chunks_;
  std::unique_ptr<webgpu::BackwardSlice> slice_;
  Dispatch* dispatch_ = nullptr;
  Shader shader_;
};

// The first head alone: its scores are L^2 numbers. All heads take as many times as long.
class Naive {
 public:
  Naive(Device* device, const Attention& attention) : device_(device), dispatch_(EmptyDispatch()) {
    const auto count = static_cast<std::size_t>(attention.len * attention.dim);
    const auto len = static_cast<std::uint32_t>(attention.len);
    const auto dim = static_cast<std::uint32_t>(attention.dim);
    dispatch_.uniform = {len, dim, 0, 0};
    const auto first = [&](const std::vector<std::uint32_t>& words) {
      return std::vector<std::uint32_t>(words.begin(),
                                        words.begin() + static_cast<std::ptrdiff_t>(count));
    };
    dispatch_.storage[0] = first(attention.q);
    dispatch_.storage[1] = first(attention.k);
    dispatch_.storage[2] = first(attention.v);
    dispatch_.storage[3].resize(std::size_t{len} * len);
    dispatch_.storage[4].resize(count);
    steps_ = {{"scores", (len / 32) * (len / 16)}, {"softmax", len}, {"values", len * (dim / 64)}};
  }
  double SecondsOfAllHeads() {
    double seconds = 0.0;
    for (const Step& step : steps_) {
      dispatch_.is_output[3] = true;
      dispatch_.is_output[4] = true;
      dispatch_.keeps_outputs = true;
      dispatch_.num_workgroups = step.num_workgroups;
      Check(device_->Run({std::string("naive.") + step.entry_point, kNaiveShader, step.entry_point},
                         &dispatch_));
      seconds += dispatch_.device_seconds;
    }
    return seconds * static_cast<double>(kHeads);
  }
  const std::vector<std::uint32_t>& output() const { return dispatch_.storage[4]; }

 private:
  struct Step {
    const char* entry_point;
    std::uint32_t num_workgroups;
  };
  Device* device_;
  Dispatch dispatch_;
  std::vector<Step> steps_;
};

double LargestDifference(const std::uint32_t* a, const std::vector<std::uint32_t>& b) {
  double largest = 0.0;
  for (std::size_t at = 0; at < b.size(); ++at) {
    const double difference = static_cast<double>(device::Fp32OfBits(a[at])) -
                              static_cast<double>(device::Fp32OfBits(b[at]));
    largest = std::max(largest, std::fabs(difference));
  }
  return largest;
}

void Measure(Device* device, Matmul* matmul, std::int64_t len, std::int64_t dim, int rounds) {
  const Attention attention(len, dim);
  Forward forward(device, attention);
  Naive naive(device, attention);
  forward.Seconds();
  Backward backward(device, attention, forward.results());
  std::vector<double> matmul_seconds, naive_seconds, plain_seconds, forward_seconds,
      backward_seconds;
  const auto run_round = [&] {
    matmul_seconds.push_back(matmul->Seconds());
    naive_seconds.push_back(naive.SecondsOfAllHeads());
    plain_seconds.push_back(forward.PlainSeconds());
    forward_seconds.push_back(forward.Seconds());
    backward_seconds.push_back(backward.Seconds());
  };
  run_round();  // compiles, while the device's clock falls
  const auto end = std::chrono::steady_clock::now() + kWarmUp;
  while (std::chrono::steady_clock::now() < end) forward.Seconds();
  for (auto* seconds :
       {&matmul_seconds, &naive_seconds, &plain_seconds, &forward_seconds, &backward_seconds}) {
    seconds->clear();
  }
  for (int round = 0; round < rounds; ++round) run_round();
  Require(matmul->IsRight(), "the matrix product is wrong");
  const double difference = LargestDifference(forward.FirstHead(), naive.output());
  Require(difference < 1e-4, "forward and naive attention differ");
  const double matmul_rate = matmul->Flops() / Median(matmul_seconds);
  const double forward_rate = attention.Flops() / Median(forward_seconds);
  // By convention five products where the forward pass has two, whatever the shader computes.
  const double backward_rate = 2.5 * attention.Flops() / Median(backward_seconds);
  std::printf(
      "  {\"L\": %lld, \"D\": %lld, \"heads\": %lld, \"rounds\": %d, \"shader\": \"%s\", "
      "\"matmul_tflops\": %.3f, \"plain_ms\": %.4f, \"forward_ms\": %.4f, \"forward_tflops\": "
      "%.3f, \"naive_ms\": %.4f, \"of_matmul\": %.3f, "
      "\"over_naive\": %.2f, \"largest_difference\": %.2e, \"backward_ms\": %.4f, "
      "\"backward_tflops\": %.3f}",
      static_cast<long long>(len), static_cast<long long>(dim), static_cast<long long>(kHeads),
      rounds, forward.label().c_str(), matmul_rate * 1e-12, Median(plain_seconds) * 1e3,
      Median(forward_seconds) * 1e3, forward_rate * 1e-12, Median(naive_seconds) * 1e3,
      forward_rate / matmul_rate, Median(naive_seconds) / Median(forward_seconds), difference,
      Median(backward_seconds) * 1e3, backward_rate * 1e-12);
}

}  // namespace
}  // namespace heed::test

int main(int argc, char** argv) {
  const std::int64_t len = argc > 1 ? std::atoll(argv[1]) : 4096;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  heed::test::Require(len > 0 && len <= 4096 && len % 64 == 0 && rounds > 0,
                      "L must be a multiple of 64 up to 4096, ROUNDS above 0");
  heed::webgpu::Device* device = nullptr;
  heed::test::Check(heed::webgpu::Device::Get(&device));
  heed::test::Matmul matmul(device);
  matmul.Seconds();
  heed::test::Require(matmul.Seconds() > 0.0, "the adapter has no clock");
  std::printf("{\"adapter\": \"%s\", \"software\": %s, \"results\": [\n",
              device->adapter().name.c_str(), device->adapter().is_software ? "true" : "false");
  for (const std::int64_t dim : {std::int64_t{64}, std::int64_t{128}}) {
    heed::test::Measure(device, &matmul, len, dim, rounds);
    std::printf(dim == 64 ? ",\n" : "\n");
  }
  std::printf("]}\n");
}
