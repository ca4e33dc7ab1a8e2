// The texts of shaders/, which the build puts into the library.
#ifndef HEED_WEBGPU_SHADER_SOURCE_H_
#define HEED_WEBGPU_SHADER_SOURCE_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "webgpu/device.h"
#include "webgpu/features.h"
#include "webgpu/key_rows.h"

namespace heed::webgpu {

struct EmbeddedSource {
  const char* name;  // relative to src/, such as "webgpu/shaders/math.wgsl"
  const char* text;
};
// Written by the build.
std::span<const EmbeddedSource> ShaderSources();

struct ShaderConstant {
  const char* name;
  std::uint32_t value;
};

// Constants, then files by their names without folder and extension, in this order; enable_f16 goes
// ahead of the constants.
std::string ShaderText(const std::vector<std::string>& files,
                       std::initializer_list<ShaderConstant> constants);

// Where o goes: as the call's element type, or fp32 for the host to merge.
enum class Output : std::uint8_t { kStored, kPartial };

// Decode has tiles of few rows, and fp32 queries.
enum class ForwardUse : std::uint8_t { kForward, kDecode };

// What a compiled forward shader depends on.
struct ForwardVariant {
  core::DType dtype;      // of o, and of what is stored as the call's type
  std::uint32_t columns;  // groups of 64 elements of o that one workgroup computes, 1 to 4
  Output output;
  ForwardUse use = ForwardUse::kForward;
  KeyStorage keys = KeyStorage::kStored;
  // Wide tiles: kForward, up to kMaxWideColumns. fp16 and subgroups go with them.
  Features features = {};
  std::uint32_t subgroup_lanes = 0;  // with subgroups: kFewLanes, or kManyLanes and more
};
inline constexpr std::uint32_t kMaxWideColumns = 2;
// Invocations of a subgroup that wide tiles tell apart.
inline constexpr std::uint32_t kFewLanes = 8, kManyLanes = 16;

Shader ForwardShader(const ForwardVariant& variant);
// columns: groups of 64 elements of a gradient that one workgroup computes, 1 to 4.
Shader BackwardShader(core::DType dtype, std::uint32_t columns);
// What moves rows between the tensors in a caller's buffers and packed ones.
enum class RowPass : std::uint8_t { kGather, kScatterWords, kScatterHalves };
Shader RowShader(RowPass pass);
// Every shader that some call may compile.
std::vector<Shader> AllShaders();

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_SHADER_SOURCE_H_
