// Runs of contiguous elements as fp32, portable: for work that grows with the rows of a problem,
// not with their product.
#ifndef HEED_CPU_SCALAR_ROWS_H_
#define HEED_CPU_SCALAR_ROWS_H_

#include <cstdint>

#include "core/dtype.h"

namespace heed::cpu {

struct ElementRun {
  void* data;
  core::DType dtype;  // f32, f16 or bf16
  std::int64_t first_elem;
  std::int64_t num_elems;
};

void LoadElements(const ElementRun& from, float* to);
void StoreElements(const float* from, const ElementRun& to);

// Of two runs of the same length, in 8 partial sums: fp32, the same bits on every target.
float DotElements(const ElementRun& a, const ElementRun& b);

}  // namespace heed::cpu

#endif  // HEED_CPU_SCALAR_ROWS_H_
