#include "attention.h"

#include <stdexcept>
#include <string>

namespace {

void Check(heed_status_t status) {
  if (status == HEED_OK) return;
  throw std::runtime_error(std::string(heed_status_name(status)) + ": " + heed_last_error());
}

// fp32 [1,S,H,D] in host memory.
struct Rows {
  std::int64_t shape[4];
  heed_tensor_t tensor;

  Rows(const std::vector<float>& values, std::int64_t num_heads, std::int64_t head_dim)
      : shape{1, static_cast<std::int64_t>(values.size()) / (num_heads * head_dim), num_heads,
              head_dim},
        // heed writes through output tensors only.
        tensor{const_cast<float*>(values.data()),
               {HEED_DEVICE_CPU, 0},
               4,
               {HEED_DTYPE_FLOAT, 32, 1},
               shape,
               nullptr,
               0} {}
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
};

}  // namespace

Attention::Attention(const AttentionShape& shape, heed_device_t device)
    : shape_(shape), device_(device) {
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  score.causal = HEED_CAUSAL_ON;
  heed_session_config_t config = HEED_SESSION_CONFIG_INIT;
  config.device = device;
  config.num_sequences = 1;
  config.num_q_heads = shape.num_q_heads;
  config.num_kv_heads = shape.num_kv_heads;
  config.head_dim = config.head_dim_v = shape.head_dim;
  config.capacity_tokens = shape.capacity_tokens;
  if (device.device_type != HEED_DEVICE_CPU) config.dtype = {HEED_DTYPE_FLOAT, 16, 1};
  config.score = &score;
  Check(heed_session_create(&config, &session_));
}

Attention::~Attention() { static_cast<void>(heed_session_destroy(session_)); }

void Attention::Run(const std::vector<float>& q, const std::vector<float>& k,
                    const std::vector<float>& v, std::vector<float>* o) {
  o->resize(q.size());
  const Rows q_rows(q, shape_.num_q_heads, shape_.head_dim);
  const Rows k_rows(k, shape_.num_kv_heads, shape_.head_dim);
  const Rows v_rows(v, shape_.num_kv_heads, shape_.head_dim);
  const Rows o_rows(*o, shape_.num_q_heads, shape_.head_dim);
  Check(heed_session_append(session_, &q_rows.tensor, &k_rows.tensor, &v_rows.tensor));
  const bool is_prompt = is_empty_;
  is_empty_ = false;
  if (is_prompt && device_.device_type == HEED_DEVICE_CPU) {
    // The rows are at hand: attend to them directly; the session only keeps them.
    heed_score_args_t score = HEED_SCORE_ARGS_INIT;
    score.causal = HEED_CAUSAL_ON;
    heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
    args.q = &q_rows.tensor;
    args.k = &k_rows.tensor;
    args.v = &v_rows.tensor;
    args.o = &o_rows.tensor;
    args.score = &score;
    Check(heed_forward(&args));
    return;
  }
  Check(heed_session_decode(session_));
  Check(heed_session_output(session_, &o_rows.tensor));
}
