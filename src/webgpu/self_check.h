// Whether shaders that use optional features compute what plain ones compute.
#ifndef HEED_WEBGPU_SELF_CHECK_H_
#define HEED_WEBGPU_SELF_CHECK_H_

#include "webgpu/device.h"
#include "webgpu/shader_source.h"

namespace heed::webgpu {

// Runs a small attention through the shader of `variant` and the plain shader. Empty when o and lse
// agree within the bounds of docs/webgpu.md; else what differs, or why one of both did not run.
std::string SelfCheck(Device* device, const ForwardVariant& variant, const Shader& shader);

// The shader of a forward variant with those features of the device, HEED_WEBGPU_FEATURES and the
// variant that passed the check, which is made on first use and kept for the life of the device. A
// shader that fails is never used again, which a line of HEED_LOG=warn tells.
core::Status ChooseForwardShader(Device* device, const ForwardVariant& variant, Shader* shader);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_SELF_CHECK_H_
