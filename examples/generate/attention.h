// The attention of one layer by heed: heed_forward for the prompt, a session for what follows.
#ifndef HEED_EXAMPLES_GENERATE_ATTENTION_H_
#define HEED_EXAMPLES_GENERATE_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "heed/heed.h"

struct AttentionShape {
  std::int64_t num_q_heads, num_kv_heads, head_dim, capacity_tokens;
};

class Attention {
 public:
  // On the CPU in fp32, on a GPU in fp16. Throws std::runtime_error with heed's message.
  Attention(const AttentionShape& shape, heed_device_t device);
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;
  ~Attention();

  // Appends S tokens and attends causally. q [S,Hq,D], k and v [S,Hkv,D], after rotary embedding;
  // o [S,Hq,D].
  void Run(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
           std::vector<float>* o);

 private:
  AttentionShape shape_;
  heed_device_t device_;
  heed_session_t* session_ = nullptr;
  bool is_empty_ = true;
};

#endif  // HEED_EXAMPLES_GENERATE_ATTENTION_H_
