
#include <cstddef>
#include <map>
#include <mutex>

#include "core/abi_struct.h"
#include "core/tensor_info.h"
#include "webgpu/backend.h"
#include "webgpu/device.h"

namespace heed::core {

template <>
struct AbiStruct<heed_webgpu_device_args_t> {
  static constexpr AbiVersion kVersion = {
      "heed_webgpu_device_args_t",
      offsetof(heed_webgpu_device_args_t, queue) + sizeof(heed_webgpu_device_args_t::queue),
      sizeof(heed_webgpu_device_args_t)};
  static heed_webgpu_device_args_t Neutral() { return HEED_WEBGPU_DEVICE_ARGS_INIT; }
};

}  // namespace heed::core

namespace heed::webgpu {
namespace {

using core::Format;
using core::Status;

struct OpenDevices {
  std::mutex mutex;
  std::map<std::int32_t, std::shared_ptr<Device>> by_id;
  std::int32_t last_id = 0;  // ids are never given twice
};

// Never destroyed: calls of other threads may outlive this one's static objects.
OpenDevices& Devices() {
  static auto* devices = new OpenDevices;
  return *devices;
}

Status NoSuchDevice(const char* name, heed_device_t device) {
  return core::InvalidArgument(
      Format("%s = %s: heed_webgpu_open_device gave no such device, or it "
             "was closed",
             name, core::DeviceText(device).c_str()));
}

Status Bind(const heed_webgpu_device_args_t& args, Library* library) {
  const bool has_path = args.library != nullptr;
  if (has_path == (args.get_proc_address != nullptr)) {
    return core::InvalidArgument(
        Format("args.library = %s: exactly one of library and get_proc_address must be given",
               has_path ? args.library : "NULL"));
  }
  if (has_path && args.proc_context != nullptr) {
    return core::InvalidArgument("args.proc_context: must be NULL without get_proc_address");
  }
  const std::string reason =
      has_path
          ? LoadLibrary(args.library, library)
          : BindLibrary(
                "args.get_proc_address",
                [&](const char* name) { return args.get_proc_address(args.proc_context, name); },
                library);
  if (reason.empty()) return {};
  return {HEED_UNAVAILABLE, "args.library cannot be used: " + reason};
}

}  // namespace

Status FindDevice(heed_device_t of_tensors, std::shared_ptr<Device>* device) {
  if (of_tensors.device_type != HEED_DEVICE_WEBGPU) {
    Device* own = nullptr;
    HEED_RETURN_IF_ERROR(Device::Get(&own));
    *device = std::shared_ptr<Device>(std::shared_ptr<Device>(), own);
    return {};
  }
  OpenDevices& devices = Devices();
  const std::lock_guard lock(devices.mutex);
  const auto found = devices.by_id.find(of_tensors.device_id);
  if (found == devices.by_id.end()) return NoSuchDevice("q.device", of_tensors);
  *device = found->second;
  return {};
}

Status OpenDevice(const heed_webgpu_device_args_t* args, heed_device_t* device) {
  heed_webgpu_device_args_t read;
  HEED_RETURN_IF_ERROR(core::ReadRequiredStruct("args", args, &read));
  HEED_RETURN_IF_ERROR(core::RequirePointer("device", device));
  HEED_RETURN_IF_ERROR(core::RequirePointer("args.adapter", read.adapter));
  HEED_RETURN_IF_ERROR(core::RequirePointer("args.device", read.device));
  HEED_RETURN_IF_ERROR(core::RequirePointer("args.queue", read.queue));
  Library library;
  HEED_RETURN_IF_ERROR(Bind(read, &library));
  const BorrowedHandles handles = {static_cast<AdapterHandle>(read.adapter),
                                   static_cast<DeviceHandle>(read.device),
                                   static_cast<QueueHandle>(read.queue)};
  std::shared_ptr<Device> opened;
  HEED_RETURN_IF_ERROR(Device::Borrow(library, handles, &opened));
  OpenDevices& devices = Devices();
  const std::lock_guard lock(devices.mutex);
  *device = {HEED_DEVICE_WEBGPU, ++devices.last_id};
  devices.by_id.emplace(device->device_id, std::move(opened));
  return {};
}

Status CloseDevice(heed_device_t device) {
  std::shared_ptr<Device> closed;  // taken apart when the lock is released
  OpenDevices& devices = Devices();
  const std::lock_guard lock(devices.mutex);
  const auto found = devices.by_id.find(device.device_id);
  if (device.device_type != HEED_DEVICE_WEBGPU || found == devices.by_id.end()) {
    return NoSuchDevice("device", device);
  }
  closed = std::move(found->second);
  devices.by_id.erase(found);
  return {};
}

}  // namespace heed::webgpu
