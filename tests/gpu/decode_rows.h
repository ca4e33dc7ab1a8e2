// Decode rows of CUDA on this GPU, beside the oracle. Include after gpu/cuda_rows.h and
// decode/decode_instance.h, in this order.
#ifndef HEED_TESTS_GPU_DECODE_ROWS_H_
#define HEED_TESTS_GPU_DECODE_ROWS_H_

#include <string>
#include <vector>

namespace heed::test {

// Rows whose ids contain id_part and that this GPU runs; says of others why not.
std::vector<KernelRow> RunnableRows(const std::string& id_part);

// Empty when got agrees with the oracle.
std::string Compare(const DecodeResults& got, const DecodeResults& wanted,
                    const DecodeInstance::Bounds& bounds);

// Empty when the row agrees with the oracle on the instance, which is as at first.
std::string RunOn(const KernelRow& row, DecodeInstance& instance, const DecodeResults& wanted,
                  const DecodeInstance::Bounds& bounds);

bool Plans(const KernelRow& row, DecodeInstance& instance);

// The oracle's results for the case as it stands.
DecodeResults OracleResults(DecodeInstance& instance);

}  // namespace heed::test

#endif  // HEED_TESTS_GPU_DECODE_ROWS_H_
