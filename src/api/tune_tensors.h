// The tensors that heed_tune runs a call on: shaped and laid out as the caller's, in memory of
// their own.
#ifndef HEED_API_TUNE_TENSORS_H_
#define HEED_API_TUNE_TENSORS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/problem.h"
#include "core/session_device.h"
#include "core/tune/agreement.h"

namespace heed::api {

// What a tensor is drawn from; kLengths... are filled for sequences of equal length.
enum class TuneContent : std::uint8_t {
  kQk,
  kOther,  // v, d_o, d_lse, bias, sinks
  kSlopes,
  kMask,
  kOffsetsQ,
  kOffsetsKv,
  kLengthsQ,
  kLengthsKv,
  kBlockTable,
  kSeedAndOffset,
  kResult  // full of NaN
};

class TuneTensors {
 public:
  explicit TuneTensors(core::SessionDevice* device) : device_(device) {}

  // Makes *tensor point at a tensor like it. Does nothing when it is null. `problem` is of the
  // caller's tensors; it says how long sequences are.
  core::Status Adopt(const heed_tensor_t** tensor, TuneContent content,
                     const core::ForwardProblem& problem);
  // Adopt, as a result of the call.
  core::Status AdoptResult(const heed_tensor_t** tensor, core::tune::Result result,
                           const core::ForwardProblem& problem);

  core::Status PoisonResults();
  // Keeps the results as those that later ones are compared with.
  core::Status KeepResults();
  // *fault says which result is off, or nothing.
  core::Status CompareResults(const core::ForwardProblem& problem, std::string* fault);

 private:
  struct Tensor {
    heed_tensor_t abi;
    std::vector<std::int64_t> shape, strides;
    core::DType dtype;
    std::size_t num_elements;  // from the first to the last, gaps included
    std::size_t size_bytes() const { return num_elements * core::DTypeBytes(dtype); }
  };
  struct ResultTensor {
    core::tune::Result result;
    const Tensor* tensor;
    std::vector<std::uint8_t> expected;
  };

  core::Status Fill(const Tensor& tensor, TuneContent content, const core::ForwardProblem& problem);

  core::SessionDevice* device_;
  std::deque<Tensor> tensors_;
  std::vector<ResultTensor> results_;
};

}  // namespace heed::api

#endif  // HEED_API_TUNE_TENSORS_H_
