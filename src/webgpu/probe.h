// A small computation with a known result, which every adapter has to pass.
#ifndef HEED_WEBGPU_PROBE_H_
#define HEED_WEBGPU_PROBE_H_

#include <string>

#include "webgpu/device.h"

namespace heed::webgpu {

Shader ProbeShader();
Dispatch MakeProbe();
// Empty when the results are right; else which one is not.
std::string CheckProbe(const Dispatch& result);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_PROBE_H_
