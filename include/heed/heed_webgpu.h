/* A caller's own WebGPU device for heed, in addition to heed.h: tensors in WGPUBuffers.
 *
 * Conventions are those of heed.h. Nothing of webgpu.h is needed to include this.
 */
#ifndef HEED_HEED_WEBGPU_H_
#define HEED_HEED_WEBGPU_H_

#include "heed/heed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Handles of webgpu.h as wgpu-native 29 has it, and the library that they come from. */
typedef struct heed_webgpu_device_args {
  size_t struct_size;
  const char* library; /* file of the loaded library, as for dlopen; or NULL and the next two */
  void* (*get_proc_address)(void* context, const char* name); /* "wgpuQueueSubmit" -> its address */
  void* proc_context;
  void* adapter; /* WGPUAdapter of the device, used during the call only; required */
  void* device;  /* WGPUDevice with the default limits at least; required */
  void* queue;   /* WGPUQueue of the device, and of no other; required */
} heed_webgpu_device_args_t;
#define HEED_WEBGPU_DEVICE_ARGS_INIT \
  { sizeof(heed_webgpu_device_args_t), NULL, NULL, NULL, NULL, NULL, NULL }

/* Gives the device of tensors in WGPUBuffers: heed_tensor.data is the handle, byte_offset counts
 * within the buffer, whose size is a multiple of 4 and whose usage has Storage and CopySrc, and
 * CopyDst if the call writes it. heed_forward, heed_backward and heed_decode, without int8, run on
 * such tensors, arrays of lengths among them, after what was submitted to the queue before, and
 * what is submitted once they have returned sees their results, which need not be there yet. They
 * work in place, but for what docs/webgpu.md lists; of a call that fails nothing is written.
 * The library keeps device and queue alive until heed_webgpu_close_device. The caller does not
 * destroy the device, nor map or destroy a tensor's buffer, while a call runs or, in the case of
 * the device, before it is closed, nor pass a buffer of another WGPUInstance, which cannot be told
 * apart: wgpu-native may end the process. Errors of the device during a call are the call's; those
 * of other threads may be, too. HEED_UNAVAILABLE when the library or the adapter is unfit, or the
 * device fails a small computation. */
HEED_API heed_status_t heed_webgpu_open_device(const heed_webgpu_device_args_t* args,
                                               heed_device_t* device);
/* Calls that run on it still finish. Tensors on it are refused from then on; ids are not given
 * again. */
HEED_API heed_status_t heed_webgpu_close_device(heed_device_t device);

#ifdef __cplusplus
}
#endif

#endif /* HEED_HEED_WEBGPU_H_ */
