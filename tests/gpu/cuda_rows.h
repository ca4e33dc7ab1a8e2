// The CUDA rows of core/kernels.inc, and engines that run them on host argument structs.
#ifndef HEED_TESTS_GPU_CUDA_ROWS_H_
#define HEED_TESTS_GPU_CUDA_ROWS_H_

#include <vector>

#include "conformance/tally.h"
#include "support/backward_case.h"
#include "support/checker.h"
#include "support/kernel_rows.h"

namespace heed::test {

const std::vector<KernelRow>& CudaRows();
// Copies the case to the GPU, runs it there and copies it back.
Engine CudaEngine(const KernelRow& row, const ForwardCase& forward_case);
// Rows of an operation ("Forward") whose id contains id_part and that this GPU runs; prints why the
// others do not.
std::vector<KernelRow> RunnableCudaRows(const std::string& op, const std::string& id_part);
// Whether a row that takes only a part of the problems (sm90: see heed_explain) takes this one;
// every other row takes all.
bool TakesCase(const KernelRow& row, const ForwardCase& forward_case);
bool TakesCase(const KernelRow& row, const BackwardCase& backward_case);
// Those that take the element type and head dim.
std::vector<KernelRow> Takers(const std::vector<KernelRow>& rows, Element element,
                              std::int64_t head_dim);
// False where every packed or paged sequence is empty: bounds of lengths on a device begin at 1,
// and a bias or a mask is as long as its bound.
bool FitsADevice(const ForwardCase& forward_case);
// Least checked first, in the order of the table from the seed's on: few cases then reach all rows.
void SortByNeed(std::vector<KernelRow>* rows, const Tally& tally, std::uint64_t seed);
// Prints how often each row was checked; none unchecked in a run of 300 cases and more that
// is no shard of a larger one.
void ReportChecks(const std::vector<KernelRow>& rows, const Tally& tally, std::uint64_t num_cases);

}  // namespace heed::test

#endif  // HEED_TESTS_GPU_CUDA_ROWS_H_
