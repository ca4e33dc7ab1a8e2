// record_main FOLDER: hands every shader that the library may compile to wgpu-native, while
// spirv_recorder.c stands before the Vulkan loader, so that FOLDER gets LABEL.spv for each.
#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "webgpu/shader_source.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  heed::webgpu::Device* device = nullptr;
  heed::core::Status status = heed::webgpu::Device::Get(&device);
  void* recorder = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_NOLOAD);
  const auto begin = reinterpret_cast<void (*)(const char*)>(
      recorder == nullptr ? nullptr : dlsym(recorder, "spirv_recorder_begin"));
  if (status.ok() && begin == nullptr) {
    std::printf("record_main: the recorder is not the libvulkan.so.1 of this process\n");
    return 1;
  }
  for (const heed::webgpu::Shader& shader : heed::webgpu::AllShaders()) {
    if (!status.ok()) break;
    begin((std::string(argv[1]) + "/" + shader.label + ".spv").c_str());
    status = device->Prepare(shader);
  }
  if (!status.ok()) std::printf("record_main: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
