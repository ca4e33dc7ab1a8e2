// A small float64 attention problem with its storage, handed to the oracle without the C ABI.
#ifndef HEED_TESTS_REFERENCE_ATTENTION_H_
#define HEED_TESTS_REFERENCE_ATTENTION_H_

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/problem.h"

namespace heed::reference {

struct Spec {
  std::int64_t batch = 1, num_q_heads = 1, num_kv_heads = 1;
  std::int64_t q_len = 1, kv_len = 1;  // slots of a dense sequence; ignored where packed
  std::int64_t head_dim = 1, head_dim_v = 1;
  double scale = 0.7;
  double softcap = 0.0;
  device::WindowRule window;
  bool has_alibi = false, has_bias = false, has_mask = false, has_sinks = false;
  std::array<bool, 4> bias_axes = {true, true, true, true};  // false: size 1, stride 0
  double dropout_p = 0.0;
  std::vector<std::int32_t> cu_seqlens_q, cu_seqlens_kv;  // packed when not empty
  std::int64_t unused_tail_rows = 0;                      // packed: rows past the last sequence
  std::vector<std::int32_t> seqused_q, seqused_kv;
  std::int64_t page_slots = 0;  // > 0: paged; needs seqused_kv
};

// Tensors are compact; all members may be changed between runs.
class Attention {
 public:
  explicit Attention(const Spec& spec, std::uint32_t seed = 1);

  const Spec& spec() const { return spec_; }
  void RunForward();
  void RunBackward();
  // sum of d_o * o + sum of d_lse * lse (finite ones) after a forward run.
  double RunLoss();
  core::ForwardProblem MakeForwardProblem();

  std::int64_t NumScores() const;  // over batch, head, query, key
  std::size_t QIndex(std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t d) const;
  std::size_t KvIndex(std::int64_t b, std::int64_t token, std::int64_t head, std::int64_t d,
                      std::int64_t head_dim);
  std::size_t OIndex(std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t d) const;
  std::size_t LseIndex(std::int64_t b, std::int64_t head, std::int64_t row) const;
  std::size_t MaskIndex(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const;

  std::vector<double> q, k, v, o, lse, d_o, d_lse, dq, dk, dv, bias, d_bias;
  std::vector<std::uint8_t> mask;
  std::vector<float> alibi_slopes, sinks, d_sinks;
  std::vector<std::int32_t> block_table;

 private:
  bool is_q_packed() const { return !spec_.cu_seqlens_q.empty(); }
  bool is_kv_packed() const { return !spec_.cu_seqlens_kv.empty(); }
  std::int64_t NumKvRows() const;
  std::int64_t NumPagesPerSequence() const;
  std::array<std::int64_t, 4> BiasShape() const;
  core::RowsView View(std::vector<double>& data, std::int64_t rows, std::int64_t heads,
                      std::int64_t head_dim, bool is_packed) const;
  core::LseView LseViewOf(std::vector<double>& data) const;
  core::ScoreView BiasView(std::vector<double>& data) const;
  void SetKeyOperands(core::ForwardProblem* problem);
  void SetScoreRule(core::ScoreRule* rule);

  Spec spec_;
  std::int64_t q_rows_ = 0;  // of one batch entry of the q tensor
  std::int64_t max_q_len_ = 0, max_kv_len_ = 0;
};

}  // namespace heed::reference

#endif  // HEED_TESTS_REFERENCE_ATTENTION_H_
