// Small attention problems built by hand, a double-precision reference written for these tests
// alone, and the comparison. Every slot that no row may see holds NaN, every output starts
// poisoned.
#ifndef HEED_TESTS_CPU_FORWARD_FIXTURE_H_
#define HEED_TESTS_CPU_FORWARD_FIXTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/problem.h"
#include "cpu/forward_kernel.h"

namespace heed::test {

// What a test asks for. Sequence lengths per batch entry; the dense extents are their maxima.
struct Spec {
  core::DType dtype = core::DType::kF32;
  std::vector<std::int64_t> q_slots = {40};
  std::vector<std::int64_t> q_len = {};  // empty = q_slots
  std::vector<std::int64_t> kv_slots = {50};
  std::vector<std::int64_t> kv_len = {};  // empty = kv_slots
  std::int64_t num_q_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t head_dim = 32;
  std::int64_t head_dim_v = 32;
  bool packed = false;
  std::int64_t page_slots = 0;  // 0 = not paged
  std::int64_t gap_elems = 0;   // unused elements after each row of q, k, v and o

  device::WindowRule window = {};
  double scale = 0.25;
  double softcap = 0.0;
  bool alibi = false;
  bool bias = false;
  bool bias_is_16_bit = false;
  bool bias_hides = false;       // some entries are -inf
  bool mask = false;             // random, 70 % visible
  std::int64_t masked_keys = 0;  // mask: this many last keys are hidden from every query
  bool sinks = false;
  std::uint32_t drop_threshold = 0;
  float score_magnitude = 1.0f;  // multiplies q
  float key_growth = 0.0f;       // key t is multiplied by 1 + key_growth * t
};

// A problem with its memory and the expected result.
class Fixture {
 public:
  explicit Fixture(const Spec& spec);
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  core::ForwardProblem& problem() { return problem_; }

  // Poisons the outputs and runs.
  void Run(const cpu::ForwardKernel& kernel, std::int64_t num_workers = 1);

  // Empty when o and lse agree with the reference and nothing else was written. p_bits: precision
  // of the probabilities that meet V, 24 or 8.
  std::string Mismatch(int p_bits = 24) const;

  // Relative Frobenius error of o.
  double FrobeniusError() const;

  const std::vector<std::uint8_t>& o_bytes() const { return o_; }
  const std::vector<float>& lse() const { return lse_; }

 private:
  struct Row {
    std::int64_t batch, head, token;
  };
  void SetShape();
  void FillQueries();
  void FillKeysAndValues();
  void FillTerms();
  void ComputeReference();
  void ReferenceRow(const Row& row);
  double Score(const Row& row, std::int64_t key) const;
  std::int64_t OutputOffset(const Row& row) const;

  Spec spec_;
  core::ForwardProblem problem_;
  std::vector<std::uint8_t> q_, k_, v_, o_, mask_, bias_;
  std::vector<float> lse_, slopes_, sinks_;
  std::vector<std::int32_t> cu_q_, cu_kv_, used_q_, used_kv_, block_table_;
  // Expected o [row of lse][head_dim_v], its error scale sum(p |v|), and lse, in problem order.
  struct Expected {
    Row row;
    std::vector<double> o, magnitude;
    double lse;
  };
  std::vector<Expected> expected_;
};

// Reads element `index` of a tensor as double.
double ReadElement(core::DType dtype, const void* data, std::int64_t index);

}  // namespace heed::test

#endif  // HEED_TESTS_CPU_FORWARD_FIXTURE_H_
