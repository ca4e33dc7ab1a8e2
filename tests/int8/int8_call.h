// A call on random int8 tensors with what exact arithmetic makes of it.
#ifndef HEED_TESTS_INT8_INT8_CALL_H_
#define HEED_TESTS_INT8_INT8_CALL_H_

#include <cstdint>
#include <random>
#include <vector>

#include "api/owned_tensor.h"
#include "cpu/int8_kernel.h"
#include "heed/heed.h"

namespace heed::test {

// Scales of q, k and v: none, or one for so many rows.
inline constexpr std::int64_t kNoScales = -1;

struct Int8Case {
  std::int64_t batch = 1, q_len = 1, kv_len = 1, num_kv_heads = 1, group = 1;
  std::int64_t head_dim = 1, head_dim_v = 1;
  heed_causal_t causal = HEED_CAUSAL_OFF;
  heed_alignment_t alignment = HEED_ALIGN_BOTTOM_RIGHT;
  std::int64_t window_left = -1, window_right = -1;
  std::int64_t q_block = kNoScales, k_block = kNoScales, v_block = kNoScales;  // 0: of a head
  heed_int8_softmax_t softmax = HEED_INT8_SOFTMAX_FLOAT;
  heed_int8_values_t values = HEED_INT8_VALUES_F32;
  double scale = 0.05;
  heed_dtype_t o_dtype = kF32;
};

struct Int8Call {
  Int8Call(const Int8Case& description, unsigned seed);
  Int8Call(const Int8Call&) = delete;
  Int8Call& operator=(const Int8Call&) = delete;

  std::int64_t num_q_heads() const { return spec.num_kv_heads * spec.group; }
  float OutputAt(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d);
  float LseAt(std::int64_t b, std::int64_t h, std::int64_t i) {
    return lse.data<float>()[(b * num_q_heads() + h) * spec.q_len + i];
  }
  // What an integer stands for.
  double Scale(OwnedTensor& scales, std::int64_t block, std::int64_t b, std::int64_t h,
               std::int64_t row) const;

  Int8Case spec;
  OwnedTensor q, k, v, o, lse;
  OwnedTensor q_scales, k_scales, v_scales;
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_int8_args_t int8 = HEED_INT8_ARGS_INIT;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
};

// Runs the call on one kernel; fills o and lse.
void RunOn(const cpu::Int8Kernel& kernel, Int8Call* call, std::int64_t num_workers);

// The largest |o - exact| / bound and |lse - exact| / bound of docs/numerics.md over all rows, of
// the float softmax; infinity for what must be equal and is not.
double WorstError(Int8Call* call);

// On the compiler's own vectors: signed byte products as Arm has them, and a matrix unit.
extern const cpu::Int8Kernel kEmulatedSignedInt8Kernel, kEmulatedMatrixInt8Kernel;

struct NamedInt8Kernel {
  const char* name;
  const cpu::Int8Kernel* kernel;
  bool is_emulated = false;  // slow
};
// Those that run on this machine; says which do not.
std::vector<NamedInt8Kernel> Int8KernelsHere();

}  // namespace heed::test

#endif  // HEED_TESTS_INT8_INT8_CALL_H_
