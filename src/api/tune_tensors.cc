#include "api/tune_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/float16.h"

namespace heed::api {
namespace {

using core::DType;
using core::Status;

constexpr std::size_t kBlockAlignmentBytes = 256;

// Uniform in [-1, 1): a function of (stream, index), by splitmix64.
float Uniform(std::uint64_t stream, std::uint64_t index) {
  std::uint64_t bits = (stream << 40) + (index + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  bits ^= bits >> 31;
  return static_cast<float>(static_cast<std::int64_t>(bits >> 40) - (1 << 23)) * 0x1p-23f;
}

void StoreNumber(DType dtype, float value, std::uint8_t* at) {
  const auto store = [at](auto number) { std::memcpy(at, &number, sizeof(number)); };
  switch (dtype) {
    case DType::kF16:
      return store(device::Fp32ToFp16(value));
    case DType::kBF16:
      return store(device::Fp32ToBf16(value));
    case DType::kF64:
      return store(static_cast<double>(value));
    default:
      return store(value);
  }
}

double LoadNumber(DType dtype, const std::uint8_t* at) {
  const auto load = [at](auto number) {
    std::memcpy(&number, at, sizeof(number));
    return number;
  };
  switch (dtype) {
    case DType::kF16:
      return static_cast<double>(device::Fp16ToFp32(load(std::uint16_t{})));
    case DType::kBF16:
      return static_cast<double>(device::Bf16ToFp32(load(std::uint16_t{})));
    case DType::kF64:
      return load(double{});
    default:
      return static_cast<double>(load(float{}));
  }
}

// Equal sequences that together fill what is packed, none above the caller's bound.
std::int64_t SequenceRows(const core::ForwardProblem& problem, bool is_query) {
  const core::Shape& shape = problem.shape;
  const std::int64_t longest = is_query ? shape.max_q_len : shape.max_kv_len;
  const std::int64_t batch = std::max<std::int64_t>(shape.batch, 1);
  const core::Packing packing = is_query ? problem.q_packing : problem.kv_packing;
  if (packing == core::Packing::kPacked) {
    const std::int64_t total = is_query ? shape.total_q_rows : shape.total_kv_rows;
    return std::min(longest, total / batch);
  }
  if (is_query || !problem.block_table.present()) return longest;
  const core::BlockTableView& table = problem.block_table;
  const std::int64_t pages = std::max<std::int64_t>(table.num_pages / batch, 1);
  return std::min(longest, std::min(pages, table.max_pages) * table.page_slots);
}

std::int32_t LengthAt(TuneContent content, std::int64_t index,
                      const core::ForwardProblem& problem) {
  switch (content) {
    case TuneContent::kOffsetsQ:
      return static_cast<std::int32_t>(index * SequenceRows(problem, true));
    case TuneContent::kOffsetsKv:
      return static_cast<std::int32_t>(index * SequenceRows(problem, false));
    case TuneContent::kLengthsQ:
      return static_cast<std::int32_t>(SequenceRows(problem, true));
    default:
      return static_cast<std::int32_t>(SequenceRows(problem, false));
  }
}

// Pages of one sequence follow each other, and those of the next one them.
std::int32_t PageAt(std::int64_t sequence, std::int64_t page, const core::ForwardProblem& problem) {
  const std::int64_t num_pages = std::max<std::int64_t>(problem.block_table.num_pages, 1);
  const std::int64_t pages =
      std::max<std::int64_t>(num_pages / std::max<std::int64_t>(problem.shape.batch, 1), 1);
  return static_cast<std::int32_t>((sequence * pages + page) % num_pages);
}

// visit(place in elements, indices) for every element of the tensor.
template <class Visit>
void ForEachElement(const std::vector<std::int64_t>& shape,
                    const std::vector<std::int64_t>& strides, Visit visit) {
  std::vector<std::int64_t> index(shape.size(), 0);
  if (std::count(shape.begin(), shape.end(), 0) > 0) return;
  for (std::int64_t at_elems = 0;;) {
    visit(static_cast<std::size_t>(at_elems), index);
    std::size_t axis = shape.size();
    for (;;) {
      if (axis == 0) return;
      --axis;
      at_elems += strides[axis];
      if (++index[axis] < shape[axis]) break;
      at_elems -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

std::size_t SpanElements(const std::vector<std::int64_t>& shape,
                         const std::vector<std::int64_t>& strides) {
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 0) return 0;
    last += (shape[axis] - 1) * strides[axis];
  }
  return static_cast<std::size_t>(last) + 1;
}

}  // namespace

Status TuneTensors::Adopt(const heed_tensor_t** tensor, TuneContent content,
                          const core::ForwardProblem& problem) {
  if (*tensor == nullptr) return {};
  const heed_tensor_t& source = **tensor;
  Tensor& own = tensors_.emplace_back();
  const auto rank = static_cast<std::size_t>(source.ndim);
  own.abi = source;
  own.dtype = core::DTypeFromAbi(source.dtype);
  own.shape.assign(source.shape, source.shape + rank);
  own.strides.assign(rank, 1);
  if (source.strides != nullptr) {
    own.strides.assign(source.strides, source.strides + rank);
  } else {
    for (std::size_t axis = rank; axis-- > 1;) {
      own.strides[axis - 1] = own.strides[axis] * own.shape[axis];
    }
  }
  own.num_elements = SpanElements(own.shape, own.strides);
  // As far from a boundary as the caller's: how rows can be moved depends on that.
  const std::size_t begin_bytes =
      (reinterpret_cast<std::uintptr_t>(source.data) + source.byte_offset) % kBlockAlignmentBytes;
  void* block = nullptr;
  HEED_RETURN_IF_ERROR(
      device_->Allocate(own.size_bytes() + begin_bytes + kBlockAlignmentBytes, &block));
  own.abi.data = static_cast<std::uint8_t*>(block) + begin_bytes;
  own.abi.byte_offset = 0;
  own.abi.shape = own.shape.data();
  own.abi.strides = own.strides.data();
  *tensor = &own.abi;
  return Fill(own, content, problem);
}

Status TuneTensors::AdoptResult(const heed_tensor_t** tensor, core::tune::Result result,
                                const core::ForwardProblem& problem) {
  if (*tensor == nullptr) return {};
  HEED_RETURN_IF_ERROR(Adopt(tensor, TuneContent::kResult, problem));
  results_.push_back({result, &tensors_.back(), {}});
  return {};
}

Status TuneTensors::Fill(const Tensor& tensor, TuneContent content,
                         const core::ForwardProblem& problem) {
  std::vector<std::uint8_t> bytes(tensor.size_bytes(), 0xff);
  const std::size_t element_bytes = core::DTypeBytes(tensor.dtype);
  const std::uint64_t stream = tensors_.size();
  const auto draw = [&](float largest, float shift) {
    for (std::size_t at = 0; at < tensor.num_elements; ++at) {
      StoreNumber(tensor.dtype, largest * (Uniform(stream, at) + shift),
                  bytes.data() + at * element_bytes);
    }
  };
  switch (content) {
    case TuneContent::kQk:
      draw(static_cast<float>(core::tune::kLargestQk), 0.0f);
      break;
    case TuneContent::kOther:
      draw(static_cast<float>(core::tune::kLargestOther), 0.0f);
      break;
    case TuneContent::kSlopes:
      draw(static_cast<float>(core::tune::kLargestSlope) / 2, 1.0f);
      break;
    case TuneContent::kMask:  // one key of eight is hidden
      for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = Uniform(stream, at) >= -0.75f;
      break;
    case TuneContent::kSeedAndOffset:
      std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
      break;
    case TuneContent::kResult:
      break;
    default:
      ForEachElement(tensor.shape, tensor.strides,
                     [&](std::size_t at_elems, const std::vector<std::int64_t>& index) {
                       const std::int32_t value = content == TuneContent::kBlockTable
                                                      ? PageAt(index[0], index[1], problem)
                                                      : LengthAt(content, index[0], problem);
                       std::memcpy(bytes.data() + at_elems * element_bytes, &value, sizeof(value));
                     });
      break;
  }
  if (bytes.empty()) return {};
  return device_->Write(tensor.abi.data, bytes.data(), bytes.size());
}

Status TuneTensors::PoisonResults() {
  for (const ResultTensor& result : results_) {
    const std::vector<std::uint8_t> bytes(result.tensor->size_bytes(), 0xff);
    if (bytes.empty()) continue;
    HEED_RETURN_IF_ERROR(device_->Write(result.tensor->abi.data, bytes.data(), bytes.size()));
  }
  return {};
}

Status TuneTensors::KeepResults() {
  for (ResultTensor& result : results_) {
    result.expected.resize(result.tensor->size_bytes());
    if (result.expected.empty()) continue;
    HEED_RETURN_IF_ERROR(
        device_->Read(result.tensor->abi.data, result.expected.size(), result.expected.data()));
  }
  return {};
}

Status TuneTensors::CompareResults(const core::ForwardProblem& problem, std::string* fault) {
  fault->clear();
  for (const ResultTensor& result : results_) {
    const Tensor& tensor = *result.tensor;
    if (tensor.num_elements == 0) continue;
    std::vector<std::uint8_t> actual(tensor.size_bytes());
    HEED_RETURN_IF_ERROR(device_->Read(tensor.abi.data, actual.size(), actual.data()));
    const std::size_t element_bytes = core::DTypeBytes(tensor.dtype);
    core::tune::Agreement agreement(
        core::tune::BoundOf(result.result, problem, static_cast<double>(tensor.num_elements)));
    ForEachElement(tensor.shape, tensor.strides,
                   [&](std::size_t at_elems, const std::vector<std::int64_t>&) {
                     const std::size_t at = at_elems * element_bytes;
                     agreement.Add(LoadNumber(tensor.dtype, result.expected.data() + at),
                                   LoadNumber(tensor.dtype, actual.data() + at));
                   });
    const std::string text = agreement.Fault();
    if (text.empty()) continue;
    *fault = std::string(core::tune::ResultName(result.result)) + ": " + text;
    return {};
  }
  return {};
}

}  // namespace heed::api
