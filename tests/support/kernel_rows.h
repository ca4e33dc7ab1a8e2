// The kernel rows of core/kernels.inc, and which of them can run on this machine.
#ifndef HEED_TESTS_SUPPORT_KERNEL_ROWS_H_
#define HEED_TESTS_SUPPORT_KERNEL_ROWS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/element.h"

namespace heed::test {

struct KernelRow {
  std::string_view id;
  std::string_view backend;  // "Cpu" or "Reference"; "Webgpu" in tests/webgpu
  std::string_view target;   // "Avx2"
  std::string_view op;       // "Forward"
  std::string_view dtype;    // "F32"; "Invalid" = any
  std::int64_t max_head_dim = 0;
  std::int32_t rank = 0;

  bool Takes(Element element) const;
  heed_backend_t AbiBackend() const;
};

// Every row of the CPU and the reference, in the order of the file, but those of int8 inputs:
// tests/int8 runs those.
const std::vector<KernelRow>& AllKernelRows();
// Empty when heed_plan() accepts the row for a small problem; else its reason.
std::string WhyRowCannotRun(const KernelRow& row);
// Forward rows that can run here.
const std::vector<KernelRow>& RunnableForwardRows();

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_KERNEL_ROWS_H_
