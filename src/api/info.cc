// heed_info: what this build and this machine offer, as text or JSON.
#include <array>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "api/facts.h"
#include "api/text.h"
#include "core/abi_struct.h"
#include "core/os/os.h"
#include "core/registry.h"
#include "cuda/backend.h"
#include "webgpu/backend.h"

namespace heed::api {
namespace {

using core::CpuTarget;
using core::Format;
using core::Status;

struct BackendInfo {
  const char* name;
  std::string why_unavailable;  // empty when it runs here
};

std::array<BackendInfo, 4> Backends() {
  return {{
      {"cpu", {}},
      {"cuda", cuda::WhyUnavailable()},
      {"webgpu", webgpu::WhyUnavailable()},
      {"reference", {}},
  }};
}

// What the environment forces, and the variables that no call accepts.
struct Overrides {
  CpuTarget target = CpuTarget::kNone;
  std::int32_t num_threads = 0;
  std::vector<std::string> errors;
};

Overrides ReadOverrides() {
  Overrides overrides;
  for (const Status& status : {ReadForcedTarget(&overrides.target),
                               ReadForcedThreads(&overrides.num_threads), CheckSpinTime()}) {
    if (!status.ok()) overrides.errors.push_back(status.message());
  }
  return overrides;
}

std::string Yes(const std::string& why_not) {
  return why_not.empty() ? "available" : "unavailable: " + why_not;
}

std::string InfoText() {
  std::string text = Format("heed %s\n\nbackends\n", heed_version());
  for (const BackendInfo& backend : Backends()) {
    text += Format("  %-10s %s\n", backend.name, Yes(backend.why_unavailable).c_str());
  }
  int ordinal = 0;
  for (const cuda::DeviceSummary& device : cuda::Devices()) {
    text += Format("  cuda:%-5d %s, sm_%d, %d multiprocessors\n", ordinal++, device.name.c_str(),
                   device.compute_capability, device.num_multiprocessors);
  }
  const webgpu::AdapterSummary adapter = webgpu::DescribeAdapter();
  if (!adapter.name.empty()) {
    text += Format("  webgpu:0   %s, %s%s, %s, features: %s\n", adapter.name.c_str(),
                   adapter.backend.c_str(), adapter.is_software ? " in software" : "",
                   adapter.library.c_str(), adapter.features.c_str());
  }
  text += Format("\ncpu: %s, %d usable cores\n", core::os::CpuModelName().c_str(),
                 core::os::NumUsableCores());
  for (int index = 1; index < core::kNumCpuTargets; ++index) {
    const auto target = static_cast<CpuTarget>(index);
    text += Format("  %-10s %s\n", core::CpuTargetName(target),
                   Yes(core::os::WhyNoCpuTarget(target)).c_str());
  }
  const Overrides overrides = ReadOverrides();
  if (overrides.target != CpuTarget::kNone) {
    text += Format("  HEED_CPU_TARGET forces %s\n", core::CpuTargetName(overrides.target));
  }
  if (overrides.num_threads > 0) {
    text += Format("  HEED_NUM_THREADS sets %d threads\n", overrides.num_threads);
  }
  for (const std::string& error : overrides.errors) text += "  " + error + "\n";
  text += "\nkernel rows\n";
  for (const core::KernelRow& row : core::KernelRows()) text += Format("  %s\n", row.id);
  return text;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += Format("\\%c", c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += Format("\\u%04x", c);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// {"name": ..., "available": ..., "reason": ...}; the reason only when there is one.
std::string AvailabilityJson(const char* name, const std::string& why_not) {
  std::string json = Format("{\"name\": %s, \"available\": %s", Quoted(name).c_str(),
                            why_not.empty() ? "true" : "false");
  if (!why_not.empty()) json += ", \"reason\": " + Quoted(why_not);
  return json + "}";
}

std::string RowJson(const core::KernelRow& row) {
  return Format(
      "{\"id\": %s, \"backend\": \"%s\", \"target\": \"%s\", \"op\": \"%s\", \"dtype\": \"%s\", "
      "\"tile_q_rows\": %d, \"tile_kv_rows\": %d}",
      Quoted(row.id).c_str(), core::BackendName(row.backend), core::CpuTargetName(row.cpu_target),
      core::OpName(row.op), core::DTypeName(row.dtype), row.tile_q_rows, row.tile_kv_rows);
}

std::string CudaDevicesJson() {
  std::string devices;
  for (const cuda::DeviceSummary& device : cuda::Devices()) {
    if (!devices.empty()) devices += ", ";
    devices +=
        Format("{\"name\": %s, \"compute_capability\": %d, \"multiprocessors\": %d}",
               Quoted(device.name).c_str(), device.compute_capability, device.num_multiprocessors);
  }
  return "[" + devices + "]";
}

// null when the backend is not available.
std::string WebgpuAdapterJson() {
  const webgpu::AdapterSummary adapter = webgpu::DescribeAdapter();
  if (adapter.name.empty()) return "null";
  return Format(
      "{\"name\": %s, \"backend\": %s, \"software\": %s, \"library\": %s, "
      "\"features\": %s}",
      Quoted(adapter.name).c_str(), Quoted(adapter.backend).c_str(),
      adapter.is_software ? "true" : "false", Quoted(adapter.library).c_str(),
      Quoted(adapter.features).c_str());
}

std::string InfoJson() {
  std::string backends;
  for (const BackendInfo& backend : Backends()) {
    if (!backends.empty()) backends += ", ";
    backends += AvailabilityJson(backend.name, backend.why_unavailable);
  }
  std::string targets;
  for (int index = 1; index < core::kNumCpuTargets; ++index) {
    const auto target = static_cast<CpuTarget>(index);
    if (!targets.empty()) targets += ", ";
    targets += AvailabilityJson(core::CpuTargetName(target), core::os::WhyNoCpuTarget(target));
  }
  std::string rows;
  for (const core::KernelRow& row : core::KernelRows()) {
    if (!rows.empty()) rows += ", ";
    rows += RowJson(row);
  }
  const Overrides overrides = ReadOverrides();
  std::string errors;
  for (const std::string& error : overrides.errors) {
    errors += (errors.empty() ? "" : ", ") + Quoted(error);
  }
  std::string json = Format("{\"version\": %s, \"backends\": [", Quoted(heed_version()).c_str());
  json += backends + "], \"cuda_devices\": " + CudaDevicesJson() +
          ", \"webgpu_adapter\": " + WebgpuAdapterJson() +
          ", \"cpu\": {\"model\": " + Quoted(core::os::CpuModelName());
  json += Format(", \"usable_cores\": %d, \"forced_threads\": ", core::os::NumUsableCores());
  json += overrides.num_threads > 0 ? Format("%d", overrides.num_threads) : "null";
  json += ", \"forced_target\": ";
  json +=
      overrides.target != CpuTarget::kNone ? Quoted(core::CpuTargetName(overrides.target)) : "null";
  json += ", \"environment_errors\": [" + errors + "], \"targets\": [" + targets;
  return json + "]}, \"kernels\": [" + rows + "]}";
}

Status Info(std::int32_t format, const TextBuffer& buffer) {
  HEED_RETURN_IF_ERROR(core::CheckEnum("format", format, HEED_INFO_JSON));
  HEED_RETURN_IF_ERROR(CheckTextBuffer(buffer));
  WriteText(format == HEED_INFO_JSON ? InfoJson() : InfoText(), buffer);
  return {};
}

}  // namespace
}  // namespace heed::api

extern "C" heed_status_t heed_info(heed_info_format_t format, char* text, size_t capacity_bytes,
                                   size_t* needed_bytes) {
  return heed::api::AtBoundary([&] {
    return heed::api::Info(heed::core::RawValue(format), {text, capacity_bytes, needed_bytes});
  });
}
