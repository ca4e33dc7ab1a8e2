#include "cuda/backend.h"

#include "core/os/os.h"
#include "cuda/backward.h"
#include "cuda/decode.h"
#include "cuda/device_state.h"
#include "cuda/forward.h"
#include "cuda/image_key.h"
#include "cuda/jit.h"
#include "cuda/kernel_sources.h"
#include "cuda/kernels/mma/forward_shape.h"
#include "cuda/row_family.h"
#include "cuda/sm90_backward.h"
#include "cuda/sm90_forward.h"

namespace heed::cuda {

using core::Status;

namespace {

std::size_t SharedBytes(const core::KernelRow& row, std::int64_t head_dim,
                        std::int64_t head_dim_v) {
  switch (row.op) {
    case core::Op::kForward:
      return ForwardSharedBytesOf(row, head_dim, head_dim_v);
    case core::Op::kBackward:
      return BackwardSharedBytesOf(row, head_dim, head_dim_v);
    case core::Op::kDecode:
      return DecodeSharedBytesOf(row, head_dim, head_dim_v);
    default:
      return 0;
  }
}

std::size_t ResidentSharedBytes(const core::KernelRow& row, std::int64_t head_dim,
                                std::int64_t head_dim_v) {
  const std::size_t cta_bytes = SharedBytes(row, head_dim, head_dim_v);
  if (row.op != core::Op::kForward || FamilyOf(row) == kSm90Family) return cta_bytes;
  // Each CTA takes 1 KiB more for the system; a multiprocessor has that much more than one CTA may
  // ask for.
  constexpr std::size_t kSystemBytes = 1024;
  const auto num_ctas = static_cast<std::size_t>(DecodeForwardVariant(row.cuda.variant).min_ctas);
  return num_ctas * (cta_bytes + kSystemBytes) - kSystemBytes;
}

const char* Objection(const core::KernelRow& row, const core::ForwardProblem& problem) {
  return FamilyOf(row) == kSm90Family ? WhyNotSm90Forward(row, problem) : nullptr;
}

const char* BackwardObjection(const core::KernelRow& row, const core::BackwardProblem& problem) {
  return FamilyOf(row) == kSm90Family ? WhyNotSm90Backward(row, problem) : nullptr;
}

// HEED_CUDA_FAMILY=sm80 leaves the rows of one family, for tests and comparisons.
Status ReadForcedFamily(std::int32_t* family) {
  const std::string name = core::os::Environment("HEED_CUDA_FAMILY");
  if (name.empty()) return {};
  for (const std::int32_t known : {75, 80, kSm90Family}) {
    if (name == core::Format("sm%d", known)) {
      *family = known;
      return {};
    }
  }
  return core::InvalidArgument(core::Format(
      "HEED_CUDA_FAMILY = %.64s: unknown family; must be one of sm75, sm80, sm90", name.c_str()));
}

}  // namespace

core::CudaPlanner Planner() {
  core::CudaPlanner planner = {SharedBytes, ResidentSharedBytes, Objection, PlanForward,
                               PlanBackward};
  planner.backward_objection = BackwardObjection;
  planner.decode_objection = WhyNotDecode;
  planner.quantize_kv_objection = WhyNotQuantizeKv;
  planner.plan_decode = PlanDecode;
  return planner;
}

Status ReadFacts(heed_device_t device, core::CudaFacts* facts) {
  facts->planner = Planner();
  HEED_RETURN_IF_ERROR(ReadForcedFamily(&facts->forced_family));
  const Driver* driver = nullptr;
  const Status opened = GetDriver(&driver);
  if (!opened.ok()) {
    facts->why_unavailable = opened.message();
    return {};
  }
  if (NumDevices(*driver) == 0) {
    facts->why_unavailable = "the driver sees no CUDA device";
    return {};
  }
  DeviceState* state = nullptr;
  HEED_RETURN_IF_ERROR(GetDeviceState(*driver, device.device_id, &state));
  const DeviceProperties& properties = state->properties();
  facts->why_unavailable.clear();
  facts->compute_capability = properties.compute_capability;
  facts->num_multiprocessors = properties.num_multiprocessors;
  facts->max_shared_bytes = properties.max_shared_bytes;
  facts->has_tensor_maps = driver->tensor_map_encode_tiled != nullptr;
  return {};
}

Status DescribeDevice(heed_device_t device, std::string* text) {
  const Driver* driver = nullptr;
  HEED_RETURN_IF_ERROR(GetDriver(&driver));
  DeviceState* state = nullptr;
  HEED_RETURN_IF_ERROR(GetDeviceState(*driver, device.device_id, &state));
  const DeviceProperties& properties = state->properties();
  *text = core::Format("cuda: %s, sm_%d, %d multiprocessors", properties.name.c_str(),
                       properties.compute_capability, properties.num_multiprocessors);
  return {};
}

const std::string& KernelsDigest() {
  static const std::string digest = core::Hex(DigestOfSources(KernelSources()));
  return digest;
}

Status TakeErrors(heed_device_t device, heed_device_errors_t* errors) {
  const Driver* driver = nullptr;
  HEED_RETURN_IF_ERROR(GetDriver(&driver));
  DeviceState* state = nullptr;
  HEED_RETURN_IF_ERROR(GetDeviceState(*driver, device.device_id, &state));
  const ErrorCounters found = state->TakeErrors();
  errors->num_bad_lengths = found.num_bad_lengths;
  errors->num_bad_block_entries = found.num_bad_block_entries;
  return {};
}

std::string WhyUnavailable() {
  const Driver* driver = nullptr;
  const Status opened = GetDriver(&driver);
  if (!opened.ok()) return opened.message();
  if (NumDevices(*driver) == 0) return "the driver sees no CUDA device";
  return WhyNoKernels(driver->version);
}

std::vector<DeviceSummary> Devices() {
  const Driver* driver = nullptr;
  if (!GetDriver(&driver).ok()) return {};
  std::vector<DeviceSummary> devices;
  for (int ordinal = 0; ordinal < NumDevices(*driver); ++ordinal) {
    DeviceState* state = nullptr;
    if (!GetDeviceState(*driver, ordinal, &state).ok()) continue;
    const DeviceProperties& properties = state->properties();
    devices.push_back(
        {properties.name, properties.compute_capability, properties.num_multiprocessors});
  }
  return devices;
}

}  // namespace heed::cuda
