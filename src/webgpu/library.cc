#include "webgpu/library.h"

#include <algorithm>

#include "core/os/dynamic_library.h"
#include "core/os/files.h"
#include "core/os/os.h"

namespace heed::webgpu {
namespace {

using core::Format;
using core::Status;
using core::os::Environment;
using core::os::ListFolder;

// As the release archives and, second, the Python package name it.
constexpr const char* kFileNames[] = {"libwgpu_native.so", "libwgpu_native-release.so"};

struct Symbol {
  const char* name;
  void** target;
};

template <class FunctionPointer>
Symbol SymbolFor(const char* name, FunctionPointer* target) {
  return {name, reinterpret_cast<void**>(target)};
}

// Null, or the first name that the library lacks.
const char* BindAll(const FindFunction& find, Functions* f) {
  const Symbol symbols[] = {
      SymbolFor("wgpuCreateInstance", &f->create_instance),
      SymbolFor("wgpuInstanceEnumerateAdapters", &f->enumerate_adapters),
      SymbolFor("wgpuAdapterGetInfo", &f->adapter_get_info),
      SymbolFor("wgpuAdapterInfoFreeMembers", &f->adapter_info_free),
      SymbolFor("wgpuAdapterHasFeature", &f->adapter_has_feature),
      SymbolFor("wgpuAdapterRequestDevice", &f->request_device),
      SymbolFor("wgpuDeviceGetQueue", &f->get_queue),
      SymbolFor("wgpuDeviceHasFeature", &f->device_has_feature),
      SymbolFor("wgpuDevicePushErrorScope", &f->push_error_scope),
      SymbolFor("wgpuDevicePopErrorScope", &f->pop_error_scope),
      SymbolFor("wgpuDeviceAddRef", &f->retain_device),
      SymbolFor("wgpuDeviceRelease", &f->release_device),
      SymbolFor("wgpuQueueAddRef", &f->retain_queue),
      SymbolFor("wgpuQueueRelease", &f->release_queue),
      SymbolFor("wgpuQueueOnSubmittedWorkDone", &f->on_work_done),
      SymbolFor("wgpuDevicePoll", &f->poll),
      SymbolFor("wgpuDeviceCreateBuffer", &f->create_buffer),
      SymbolFor("wgpuBufferMapAsync", &f->map_buffer),
      SymbolFor("wgpuBufferGetConstMappedRange", &f->mapped_range),
      SymbolFor("wgpuBufferGetMappedRange", &f->writable_range),
      SymbolFor("wgpuBufferUnmap", &f->unmap_buffer),
      SymbolFor("wgpuBufferRelease", &f->release_buffer),
      SymbolFor("wgpuBufferGetSize", &f->buffer_size),
      SymbolFor("wgpuBufferGetUsage", &f->buffer_usage),
      SymbolFor("wgpuDeviceCreateShaderModuleTrusted", &f->create_shader),
      SymbolFor("wgpuShaderModuleRelease", &f->release_shader),
      SymbolFor("wgpuDeviceCreateComputePipeline", &f->create_pipeline),
      SymbolFor("wgpuComputePipelineRelease", &f->release_pipeline),
      SymbolFor("wgpuComputePipelineGetBindGroupLayout", &f->pipeline_layout),
      SymbolFor("wgpuBindGroupLayoutRelease", &f->release_layout),
      SymbolFor("wgpuDeviceCreateBindGroup", &f->create_bind_group),
      SymbolFor("wgpuBindGroupRelease", &f->release_bind_group),
      SymbolFor("wgpuDeviceCreateCommandEncoder", &f->create_encoder),
      SymbolFor("wgpuCommandEncoderRelease", &f->release_encoder),
      SymbolFor("wgpuCommandEncoderBeginComputePass", &f->begin_pass),
      SymbolFor("wgpuComputePassEncoderSetPipeline", &f->set_pipeline),
      SymbolFor("wgpuComputePassEncoderSetBindGroup", &f->set_bind_group),
      SymbolFor("wgpuComputePassEncoderDispatchWorkgroups", &f->dispatch),
      SymbolFor("wgpuComputePassEncoderEnd", &f->end_pass),
      SymbolFor("wgpuComputePassEncoderRelease", &f->release_pass),
      SymbolFor("wgpuCommandEncoderCopyBufferToBuffer", &f->copy_buffer),
      SymbolFor("wgpuDeviceCreateQuerySet", &f->create_queries),
      SymbolFor("wgpuCommandEncoderResolveQuerySet", &f->resolve_queries),
      SymbolFor("wgpuQuerySetRelease", &f->release_queries),
      SymbolFor("wgpuQueueGetTimestampPeriod", &f->timestamp_period),
      SymbolFor("wgpuCommandEncoderFinish", &f->finish),
      SymbolFor("wgpuCommandBufferRelease", &f->release_commands),
      SymbolFor("wgpuQueueSubmit", &f->submit),
      SymbolFor("wgpuQueueWriteBuffer", &f->write_buffer),
  };
  for (const Symbol& symbol : symbols) {
    *symbol.target = find(symbol.name);
    if (*symbol.target == nullptr) return symbol.name;
  }
  return nullptr;
}

std::string VersionText(std::uint32_t version) {
  return Format("%u.%u.%u.%u", version >> 24, version >> 16 & 255, version >> 8 & 255,
                version & 255);
}

bool HasFile(const std::string& folder, const std::string& name) {
  const std::vector<std::string> names = ListFolder(folder);
  return std::find(names.begin(), names.end(), name) != names.end();
}

void AddFolder(const std::string& folder, std::vector<std::string>* candidates) {
  for (const char* name : kFileNames) {
    if (HasFile(folder, name)) candidates->push_back(folder + "/" + name);
  }
}

// <lib>/python3*/{site,dist}-packages/wgpu/resources.
void AddPythonPackages(const std::string& lib_folder, std::vector<std::string>* candidates) {
  for (const std::string& name : ListFolder(lib_folder)) {
    if (!name.starts_with("python3")) continue;
    for (const char* kind : {"site-packages", "dist-packages"}) {
      AddFolder(lib_folder + "/" + name + "/" + kind + "/wgpu/resources", candidates);
    }
  }
}

struct Loaded {
  Library library;
  Status status;
};

Loaded LoadFirst() {
  Loaded loaded;
  const bool is_forced = !Environment("HEED_WEBGPU_LIBRARY").empty();
  std::string reasons;
  for (const std::string& candidate : LibraryCandidates()) {
    Library library;
    const std::string reason = LoadLibrary(candidate, &library);
    if (reason.empty()) {
      loaded.library = library;
      return loaded;
    }
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  const char* remedy = is_forced ? "HEED_WEBGPU_LIBRARY names a library that cannot be used"
                                 : "no usable libwgpu_native was found; install the Python "
                                   "package wgpu, or set HEED_WEBGPU_LIBRARY";
  loaded.status = {HEED_UNAVAILABLE, Format("%s (%s)", remedy, reasons.c_str())};
  return loaded;
}

}  // namespace

std::string BindLibrary(const std::string& path, const FindFunction& find, Library* library) {
  *SymbolFor("wgpuGetVersion", &library->functions.get_version).target = find("wgpuGetVersion");
  if (library->functions.get_version == nullptr) {
    return path + " is not wgpu-native: it has no wgpuGetVersion";
  }
  library->version = VersionText(library->functions.get_version());
  if (library->functions.get_version() >> 24 != kInterfaceMajor) {
    return Format("%s is wgpu-native %s: only %u.x is supported", path.c_str(),
                  library->version.c_str(), kInterfaceMajor);
  }
  if (const char* missing = BindAll(find, &library->functions)) {
    return Format("%s has no %s", path.c_str(), missing);
  }
  library->path = path;
  return {};
}

std::string LoadLibrary(const std::string& path, Library* library) {
  std::string error;
  const auto opened = core::os::DynamicLibrary::Open(path, &error);
  if (!opened.is_open()) return error;
  return BindLibrary(
      path, [&](const char* name) { return opened.Symbol(name); }, library);
}

std::vector<std::string> LibraryCandidates() {
  const std::string forced = Environment("HEED_WEBGPU_LIBRARY");
  if (!forced.empty()) return {forced};
  std::vector<std::string> candidates;
  const std::string own =
      core::os::PathOfLibraryWith(reinterpret_cast<const void*>(&LibraryCandidates));
  const std::size_t slash = own.rfind('/');
  if (slash != std::string::npos) AddFolder(own.substr(0, slash), &candidates);
  candidates.emplace_back(kFileNames[0]);
  const std::string active = Environment("VIRTUAL_ENV");
  if (!active.empty()) AddPythonPackages(active + "/lib", &candidates);
  for (const char* lib : {"/usr/local/lib", "/usr/lib"}) AddPythonPackages(lib, &candidates);
  return candidates;
}

Status GetLibrary(const Library** library) {
  static const Loaded* loaded = new Loaded(LoadFirst());
  *library = &loaded->library;
  return loaded->status;
}

}  // namespace heed::webgpu
