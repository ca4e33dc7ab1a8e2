#include "webgpu/binding_limit.h"

#include <charconv>
#include <cinttypes>
#include <string>

#include "core/os/os.h"

namespace heed::webgpu {
namespace {

// Below that a row of a usual head dim would not fit.
constexpr std::uint64_t kLeastBindingBytes = 4096;

}  // namespace

core::Status ReadBindingLimit(std::uint64_t* max_binding_bytes) {
  *max_binding_bytes = kMaxBindingBytes;
  const std::string text = core::os::Environment("HEED_WEBGPU_MAX_BINDING_BYTES");
  if (text.empty()) return {};
  const char* end = text.data() + text.size();
  const std::from_chars_result parsed = std::from_chars(text.data(), end, *max_binding_bytes);
  if (parsed.ec == std::errc{} && parsed.ptr == end && *max_binding_bytes >= kLeastBindingBytes &&
      *max_binding_bytes <= kMaxBindingBytes) {
    return {};
  }
  return core::InvalidArgument(core::Format(
      "HEED_WEBGPU_MAX_BINDING_BYTES = %.64s: must be a whole number from %" PRIu64 " to %" PRIu64,
      text.c_str(), kLeastBindingBytes, kMaxBindingBytes));
}

core::Status ReadLimits(const Device& device, UnitLimits* limits) {
  limits->max_loop_rounds = MaxLoopRounds(device.adapter().is_software);
  return ReadBindingLimit(&limits->max_binding_bytes);
}

}  // namespace heed::webgpu
