// What shaders may use beyond the core of the language, and which of it a device and the
// environment allow.
#ifndef HEED_WEBGPU_FEATURES_H_
#define HEED_WEBGPU_FEATURES_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "core/status.h"
#include "webgpu/adapter.h"

namespace heed::webgpu {

class Device;

// f16 and subgroups are used by wide tiles only.
struct Features {
  bool has_wide_tiles = false;  // more registers an invocation, which any device may have
  bool has_f16 = false;
  bool has_subgroups = false;

  bool operator==(const Features&) const = default;
};

// "wide, f16, subgroups", or "none".
std::string FeatureNames(const Features& features);

// HEED_WEBGPU_FEATURES: all or none, or names with commas between them. Without it hardware gets
// wide tiles and subgroups, software none. Errors: HEED_INVALID_ARGUMENT for another value.
core::Status ReadFeatureWish(const Adapter& adapter, Features* wish);

// What a device was found to have, kept with it.
struct FeatureState {
  std::mutex mutex;
  bool is_probed = false;
  Features features;                 // f16 and subgroups as they computed
  std::uint32_t subgroup_lanes = 0;  // of the probe; invocations in the order of the workgroup's
  std::map<std::string, bool> is_trusted;  // by the label of a shader, of those self-checked
};

// Those of the wish that the device has: f16 and subgroups each pass a small computation first,
// once per device. Compiles and runs shaders.
core::Status FindFeatures(Device* device, Features* features);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_FEATURES_H_
