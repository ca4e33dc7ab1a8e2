// A llama-architecture model in plain fp32 loops, but for its attention, which is heed's.
// Symbols: S tokens, E embedding features, F feed-forward features, V vocabulary.
#ifndef HEED_EXAMPLES_GENERATE_MODEL_H_
#define HEED_EXAMPLES_GENERATE_MODEL_H_

#include <memory>
#include <vector>

#include "attention.h"
#include "gguf.h"

class Model {
 public:
  // capacity_tokens: the longest text.
  Model(const GgufFile& file, std::int64_t capacity_tokens, heed_device_t device);

  // Appends tokens to the text; logits [S,V] of what follows each.
  std::vector<float> Forward(const std::vector<int>& tokens);
  std::size_t vocabulary() const { return embedding_.size() / num_features_; }

 private:
  struct Layer {
    std::vector<float> attention_norm, q, k, v, output, ffn_norm, gate, up, down;
    std::unique_ptr<Attention> attention;
  };

  void AddAttention(Layer* layer, std::size_t num_tokens, std::vector<float>* x) const;
  void AddFeedForward(const Layer& layer, std::vector<float>* x) const;
  void Rotate(std::size_t num_tokens, std::vector<float>* rows) const;
  std::vector<float> Normalize(const std::vector<float>& x, const std::vector<float>& weight) const;

  std::size_t num_features_, head_dim_;
  double epsilon_, rope_base_;
  std::vector<float> embedding_, output_norm_;  // [V,E], also the output projection; [E]
  std::vector<Layer> layers_;
  std::size_t num_past_tokens_ = 0;
};

#endif  // HEED_EXAMPLES_GENERATE_MODEL_H_
