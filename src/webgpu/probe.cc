#include "webgpu/probe.h"

#include <cmath>
#include <limits>

#include "core/status.h"
#include "device/float16.h"
#include "device/prelude.h"
#include "webgpu/shader_source.h"

namespace heed::webgpu {
namespace {

using device::BitsOfFp32;
using device::Fp32OfBits;

constexpr std::size_t kNumValues = 1024;
constexpr std::size_t kNumGroups = kNumValues / 4;
constexpr std::size_t kNumHalfWords = kNumValues / 2;
constexpr double kAllowedError = 0x1p-21;  // four units in the last place

// -127 to 0; the first two are NaN and -inf.
float PowerInput(std::size_t at) {
  if (at == 0) return std::numeric_limits<float>::quiet_NaN();
  if (at == 1) return -std::numeric_limits<float>::infinity();
  return -127.0f * static_cast<float>(at) / static_cast<float>(kNumValues);
}

float LogInput(std::size_t at) { return std::exp2(static_cast<float>(at) / 16.0f - 32.0f); }

// All exponents, subnormal halves included, and neither infinity nor NaN.
device::u16 HalfInput(std::size_t at) {
  const std::size_t bits = at * 61;
  return static_cast<device::u16>(bits % 0x7C00 | (at % 2 == 0 ? 0x8000 : 0));
}

bool IsNear(float actual, double expected, double unit) {
  return std::fabs(static_cast<double>(actual) - expected) <= kAllowedError * unit;
}

bool IsPowerRight(std::size_t at, float actual) {
  if (at == 0) return std::isnan(actual);
  if (at == 1) return actual == 0.0f;
  const double expected = std::exp2(static_cast<double>(PowerInput(at)));
  // Subnormal results may be 0.
  return expected < 0x1p-126 ? actual >= 0.0f && actual <= 0x1p-126f
                             : IsNear(actual, expected, expected);
}

bool IsLogRight(std::size_t at, float actual) {
  const double expected = std::log2(static_cast<double>(LogInput(at)));
  return IsNear(actual, expected, std::max(1.0, std::fabs(expected)));
}

}  // namespace

Shader ProbeShader() {
  return {"probe", ShaderText({"storage_f16", "math", "probe"}, {}), "probe"};
}

Dispatch MakeProbe() {
  Dispatch dispatch;
  dispatch.uniform = {kNumGroups, 0, 0, 0};
  for (std::size_t at = 0; at < kNumValues; ++at) {
    dispatch.storage[0].push_back(BitsOfFp32(PowerInput(at)));
    dispatch.storage[1].push_back(BitsOfFp32(LogInput(at)));
  }
  for (std::size_t at = 0; at < kNumValues; at += 2) {
    dispatch.storage[2].push_back(HalfInput(at) | static_cast<std::uint32_t>(HalfInput(at + 1))
                                                      << 16);
  }
  dispatch.storage[3].resize(kNumValues);
  dispatch.storage[4].resize(kNumValues);
  dispatch.storage[5].resize(kNumValues);
  dispatch.storage[6].resize(kNumHalfWords);
  dispatch.storage[7].resize(kNumGroups);
  for (std::size_t binding = 3; binding < kNumStorageBindings; ++binding) {
    dispatch.is_output[binding] = true;
  }
  dispatch.num_workgroups = kNumGroups / 64;
  return dispatch;
}

std::string CheckProbe(const Dispatch& result) {
  for (std::size_t at = 0; at < kNumValues; ++at) {
    const float power = Fp32OfBits(result.storage[3][at]);
    if (!IsPowerRight(at, power)) {
      return core::Format("2^%g gives %g", static_cast<double>(PowerInput(at)),
                          static_cast<double>(power));
    }
    const float log = Fp32OfBits(result.storage[4][at]);
    if (!IsLogRight(at, log)) {
      return core::Format("log2(%g) gives %g", static_cast<double>(LogInput(at)),
                          static_cast<double>(log));
    }
    const float value = Fp32OfBits(result.storage[5][at]);
    if (value != device::Fp16ToFp32(HalfInput(at))) {
      return core::Format("fp16 0x%04x reads as %g", HalfInput(at), static_cast<double>(value));
    }
  }
  if (result.storage[6] != result.storage[2]) return "fp16 numbers change when they are written";
  for (std::size_t at = 0; at < kNumGroups; ++at) {
    const std::uint32_t a = result.storage[2][2 * at], b = result.storage[2][2 * at + 1];
    if (result.storage[7][at] != (a >> 16) * (b & 0xFFFF) + a * b) {
      return "products of 32-bit integers are wrong";
    }
  }
  return {};
}

}  // namespace heed::webgpu
