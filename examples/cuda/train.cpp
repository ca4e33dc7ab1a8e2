// A training loop on the GPU: forward, loss, backward, SGD step. Learns the queries, keys and
// values of one causal attention layer whose outputs shall match those of a teacher, and prints the
// loss.
//
//   g++ -std=c++17 train.cpp -lheed -lcudart && ./a.out
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "flash_attention_v2.h"

namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n%s\n", what, cudaGetErrorString(error), heed_last_error());
  std::exit(1);
}

// An fp16 tensor on the GPU with its fp32 master copy on the host.
class Tensor {
 public:
  explicit Tensor(size_t count) : values(count), halves_(count) {
    Check(cudaMalloc(&data_, count * sizeof(half)), "cudaMalloc");
  }
  ~Tensor() { cudaFree(data_); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  half* data() const { return data_; }
  void Upload() {
    for (size_t i = 0; i < values.size(); ++i) halves_[i] = __float2half(values[i]);
    Check(cudaMemcpy(data_, halves_.data(), halves_.size() * sizeof(half), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  void Download() {
    Check(cudaMemcpy(halves_.data(), data_, halves_.size() * sizeof(half), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    for (size_t i = 0; i < values.size(); ++i) values[i] = __half2float(halves_[i]);
  }
  void FillNormal(std::mt19937* random, float deviation) {
    std::normal_distribution<float> normal(0.0f, deviation);
    for (float& value : values) value = normal(*random);
    Upload();
  }

  std::vector<float> values;

 private:
  std::vector<half> halves_;
  half* data_ = nullptr;
};

}  // namespace

int main() {
  FlashAttentionV2Config config = {};
  config.batch_size = 2;
  config.seq_len = 256;
  config.num_heads = 4;
  config.head_dim = 64;
  config.use_causal_mask = true;
  const size_t num_rows = size_t{2} * 4 * 256;
  const size_t num_elems = num_rows * 64;

  Check(flash_attention_v2_init(), "flash_attention_v2_init");
  std::mt19937 random(1);
  Tensor q(num_elems), k(num_elems), v(num_elems), o(num_elems), l(num_rows);
  Tensor target(num_elems), d_o(num_elems), dq(num_elems), dk(num_elems), dv(num_elems);
  // The teacher's output, then the student's own starting point.
  for (Tensor* input : {&q, &k, &v}) input->FillNormal(&random, 1.0f);
  Check(flash_attention_v2_forward(q.data(), k.data(), v.data(), target.data(), l.data(), config),
        "teacher");
  target.Download();
  for (Tensor* input : {&q, &k, &v}) input->FillNormal(&random, 0.5f);

  constexpr int kSteps = 100;
  constexpr float kRate = 32.0f;
  double first_loss = 0.0, loss = 0.0;
  for (int step = 0; step < kSteps; ++step) {
    Check(flash_attention_v2_forward(q.data(), k.data(), v.data(), o.data(), l.data(), config),
          "forward");
    o.Download();
    loss = 0.0;
    for (size_t i = 0; i < num_elems; ++i) {
      const float difference = o.values[i] - target.values[i];
      loss += 0.5 * difference * difference;
      d_o.values[i] = difference / 64.0f;
    }
    loss /= static_cast<double>(num_elems);
    d_o.Upload();
    Check(flash_attention_v2_backward(q.data(), k.data(), v.data(), o.data(), l.data(), d_o.data(),
                                      dq.data(), dk.data(), dv.data(), config),
          "backward");
    struct Pair {
      Tensor* parameter;
      Tensor* gradient;
    };
    for (const Pair& pair : {Pair{&q, &dq}, Pair{&k, &dk}, Pair{&v, &dv}}) {
      pair.gradient->Download();
      for (size_t i = 0; i < num_elems; ++i) {
        pair.parameter->values[i] -= kRate * pair.gradient->values[i];
      }
      pair.parameter->Upload();
    }
    if (step == 0) first_loss = loss;
    if (step % 20 == 0) std::printf("step %2d  loss %.5f\n", step, loss);
  }
  std::printf("step %2d  loss %.5f\n", kSteps, loss);
  Check(flash_attention_v2_cleanup(), "flash_attention_v2_cleanup");
  const bool has_learnt = std::isfinite(loss) && loss < 0.25 * first_loss;
  std::printf("%s\n", has_learnt ? "the loss fell" : "the loss did not fall");
  return has_learnt ? 0 : 1;
}
