#include "model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

// Eight sums side by side, so that compilers may use vectors.
float Dot(const float* a, const float* b, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  float sums[kLanes] = {};
  std::size_t n = 0;
  for (; n + kLanes <= count; n += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[n + lane] * b[n + lane];
  }
  for (; n < count; ++n) sums[0] += a[n] * b[n];
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  return total;
}

// y [S,out] = x [S,in] weight^T, weight [out,in]. Output features are dealt out to threads.
std::vector<float> Multiply(const std::vector<float>& x, const std::vector<float>& weight,
                            std::size_t in) {
  const std::size_t num_tokens = x.size() / in, out = weight.size() / in;
  std::vector<float> y(num_tokens * out);
  const auto rows = [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      for (std::size_t token = 0; token < num_tokens; ++token) {
        y[token * out + row] = Dot(&x[token * in], &weight[row * in], in);
      }
    }
  };
  constexpr std::size_t kProductsWorthAThread = 1 << 20;
  const std::size_t num_threads =
      std::clamp<std::size_t>(num_tokens * weight.size() / kProductsWorthAThread, 1,
                              std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < num_threads; ++t) {
    threads.emplace_back(rows, t * out / num_threads, (t + 1) * out / num_threads);
  }
  rows(0, out / num_threads);
  for (std::thread& thread : threads) thread.join();
  return y;
}

void Add(const std::vector<float>& y, std::vector<float>* x) {
  for (std::size_t n = 0; n < y.size(); ++n) (*x)[n] += y[n];
}

}  // namespace

Model::Model(const GgufFile& file, std::int64_t capacity_tokens, heed_device_t device)
    : embedding_(file.Weight("token_embd.weight")),
      output_norm_(file.Weight("output_norm.weight")) {
  if (file.Text("general.architecture") != "llama") {
    throw std::runtime_error("only the llama architecture is understood");
  }
  const auto number = [&file](const std::string& key) { return file.Number("llama." + key); };
  num_features_ = output_norm_.size();
  head_dim_ = static_cast<std::size_t>(number("rope.dimension_count"));
  epsilon_ = number("attention.layer_norm_rms_epsilon");
  rope_base_ = number("rope.freq_base");
  const AttentionShape shape = {static_cast<std::int64_t>(number("attention.head_count")),
                                static_cast<std::int64_t>(number("attention.head_count_kv")),
                                static_cast<std::int64_t>(head_dim_), capacity_tokens};
  const int num_layers = static_cast<int>(number("block_count"));
  for (int index = 0; index < num_layers; ++index) {
    const auto weight = [&file, index](const std::string& name) {
      return file.Weight("blk." + std::to_string(index) + "." + name + ".weight");
    };
    layers_.push_back({weight("attn_norm"), weight("attn_q"), weight("attn_k"), weight("attn_v"),
                       weight("attn_output"), weight("ffn_norm"), weight("ffn_gate"),
                       weight("ffn_up"), weight("ffn_down"),
                       std::make_unique<Attention>(shape, device)});
  }
}

// x [S,E] over its root mean square per row, times weight [E].
std::vector<float> Model::Normalize(const std::vector<float>& x,
                                    const std::vector<float>& weight) const {
  std::vector<float> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += num_features_) {
    const float mean = Dot(&x[row], &x[row], num_features_) / static_cast<float>(num_features_);
    const float scale = 1.0f / std::sqrt(mean + static_cast<float>(epsilon_));
    for (std::size_t n = 0; n < num_features_; ++n) y[row + n] = x[row + n] * scale * weight[n];
  }
  return y;
}

// Pair (2i, 2i+1) of a head turns by position * base^(-2i/D). rows: [S,H,D].
void Model::Rotate(std::size_t num_tokens, std::vector<float>* rows) const {
  const std::size_t token_elems = rows->size() / num_tokens;
  for (std::size_t token = 0; token < num_tokens; ++token) {
    for (std::size_t n = 0; n < token_elems; n += 2) {
      const double power = -static_cast<double>(n % head_dim_) / static_cast<double>(head_dim_);
      const double angle =
          static_cast<double>(num_past_tokens_ + token) * std::pow(rope_base_, power);
      float* pair = rows->data() + token * token_elems + n;
      const double even = pair[0], odd = pair[1];
      pair[0] = static_cast<float>(even * std::cos(angle) - odd * std::sin(angle));
      pair[1] = static_cast<float>(even * std::sin(angle) + odd * std::cos(angle));
    }
  }
}

void Model::AddAttention(Layer* layer, std::size_t num_tokens, std::vector<float>* x) const {
  const std::vector<float> normed = Normalize(*x, layer->attention_norm);
  std::vector<float> q = Multiply(normed, layer->q, num_features_);
  std::vector<float> k = Multiply(normed, layer->k, num_features_);
  const std::vector<float> v = Multiply(normed, layer->v, num_features_);
  Rotate(num_tokens, &q);
  Rotate(num_tokens, &k);
  std::vector<float> o;
  layer->attention->Run(q, k, v, &o);
  Add(Multiply(o, layer->output, o.size() / num_tokens), x);
}

void Model::AddFeedForward(const Layer& layer, std::vector<float>* x) const {
  const std::vector<float> normed = Normalize(*x, layer.ffn_norm);
  std::vector<float> gated = Multiply(normed, layer.gate, num_features_);
  const std::vector<float> up = Multiply(normed, layer.up, num_features_);
  for (std::size_t n = 0; n < gated.size(); ++n) {
    gated[n] = gated[n] / (1.0f + std::exp(-gated[n])) * up[n];
  }
  Add(Multiply(gated, layer.down, layer.down.size() / num_features_), x);
}

std::vector<float> Model::Forward(const std::vector<int>& tokens) {
  std::vector<float> x;
  for (const int token : tokens) {
    if (token < 0 || static_cast<std::size_t>(token) >= vocabulary()) {
      throw std::runtime_error("token " + std::to_string(token) + " is not in the vocabulary");
    }
    const auto row = embedding_.begin() +
                     static_cast<std::ptrdiff_t>(static_cast<std::size_t>(token) * num_features_);
    x.insert(x.end(), row, row + static_cast<std::ptrdiff_t>(num_features_));
  }
  for (Layer& layer : layers_) {
    AddAttention(&layer, tokens.size(), &x);
    AddFeedForward(layer, &x);
  }
  num_past_tokens_ += tokens.size();
  return Multiply(Normalize(x, output_norm_), embedding_, num_features_);
}
