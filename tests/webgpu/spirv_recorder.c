/* Stands before the Vulkan loader as libvulkan.so.1 and writes down the SPIR-V that wgpu-native
 * makes of each shader. HEED_REAL_VULKAN is the loader's file.
 *
 * Once spirv_recorder_begin was called no pipeline is compiled any more: drivers in software take
 * seconds for each, and their pipelines are not what is looked at. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Function)(void);

/* VkShaderModuleCreateInfo. */
typedef struct ShaderModuleInfo {
  uint32_t type;
  const void* next;
  uint32_t flags;
  size_t code_bytes;
  const uint32_t* code;
} ShaderModuleInfo;

static char current_path[4096];
static Function (*real_instance_address)(void* instance, const char* name);
static Function (*real_device_address)(void* device, const char* name);
static int32_t (*real_create_module)(void* device, const ShaderModuleInfo* info,
                                     const void* allocator, uint64_t* module);
static int32_t (*real_create_pipelines)(void* device, uint64_t cache, uint32_t count,
                                        const void* infos, const void* allocator,
                                        uint64_t* pipelines);

/* The next shader's code goes to this file. */
void spirv_recorder_begin(const char* path) {
  snprintf(current_path, sizeof(current_path), "%s", path);
}

static int32_t CreateModule(void* device, const ShaderModuleInfo* info, const void* allocator,
                            uint64_t* module) {
  if (current_path[0] != '\0') {
    FILE* file = fopen(current_path, "wb");
    if (file == NULL || fwrite(info->code, 1, info->code_bytes, file) != info->code_bytes ||
        fclose(file) != 0) {
      perror(current_path);
      abort();
    }
  }
  return real_create_module(device, info, allocator, module);
}

static int32_t CreatePipelines(void* device, uint64_t cache, uint32_t count, const void* infos,
                               const void* allocator, uint64_t* pipelines) {
  if (current_path[0] == '\0') {
    return real_create_pipelines(device, cache, count, infos, allocator, pipelines);
  }
  memset(pipelines, 0, count * sizeof(*pipelines)); /* VK_NULL_HANDLE, which may be destroyed */
  return 0;
}

static Function DeviceAddress(void* device, const char* name);

/* A function's own address in its place, remembered under *real. */
static Function Replace(Function found, void* real, Function own) {
  if (found == NULL) return NULL;
  memcpy(real, &found, sizeof(found));
  return own;
}

static Function Choose(Function found, const char* name) {
  if (strcmp(name, "vkGetDeviceProcAddr") == 0) {
    return Replace(found, &real_device_address, (Function)DeviceAddress);
  }
  if (strcmp(name, "vkCreateShaderModule") == 0) {
    return Replace(found, &real_create_module, (Function)CreateModule);
  }
  if (strcmp(name, "vkCreateComputePipelines") == 0) {
    return Replace(found, &real_create_pipelines, (Function)CreatePipelines);
  }
  return found;
}

static Function DeviceAddress(void* device, const char* name) {
  return Choose(real_device_address(device, name), name);
}

Function vkGetInstanceProcAddr(void* instance, const char* name) {
  if (real_instance_address == NULL) {
    void* loader = dlopen(getenv("HEED_REAL_VULKAN"), RTLD_NOW | RTLD_LOCAL);
    void* address = loader == NULL ? NULL : dlsym(loader, "vkGetInstanceProcAddr");
    if (address == NULL) {
      fprintf(stderr, "spirv_recorder: HEED_REAL_VULKAN: %s\n", dlerror());
      abort();
    }
    memcpy(&real_instance_address, &address, sizeof(address));
  }
  return Choose(real_instance_address(instance, name), name);
}
