#include "webgpu/shader_source.h"

#include "device/constants.h"
#include "device/philox.h"

namespace heed::webgpu {
namespace {

std::string_view FindText(std::string_view file) {
  for (const EmbeddedSource& source : ShaderSources()) {
    std::string_view name = source.name;
    name.remove_prefix(name.rfind('/') + 1);
    if (name.substr(0, name.rfind('.')) == file) return source.text;
  }
  return {};
}

// Numbers that host and shaders share.
std::string SharedConstants() {
  std::string text = core::Format("const LOG2_E: f32 = %.9g;\nconst LN_2: f32 = %.9g;\n",
                                  device::kLog2E, device::kLn2);
  const ShaderConstant constants[] = {
      {"PHILOX_MULTIPLIER_0", device::kPhiloxMultiplier0},
      {"PHILOX_MULTIPLIER_1", device::kPhiloxMultiplier1},
      {"PHILOX_WEYL_0", device::kPhiloxWeyl0},
      {"PHILOX_WEYL_1", device::kPhiloxWeyl1},
      {"PHILOX_ROUNDS", device::kPhiloxRounds},
  };
  for (const ShaderConstant& constant : constants) {
    text += core::Format("const %s: u32 = %uu;\n", constant.name, constant.value);
  }
  return text;
}

}  // namespace

std::string ShaderText(const std::vector<std::string_view>& files,
                       std::initializer_list<ShaderConstant> constants) {
  std::string text = SharedConstants();
  for (const ShaderConstant& constant : constants) {
    text += core::Format("const %s: u32 = %uu;\n", constant.name, constant.value);
  }
  for (const std::string_view file : files) text += FindText(file);
  return text;
}

Shader ForwardShader(const ForwardVariant& variant) {
  const std::string storage = std::string("storage_") + core::DTypeName(variant.dtype);
  const bool is_partial = variant.output == Output::kPartial;
  return {core::Format("forward.%s.c%u%s", core::DTypeName(variant.dtype), variant.columns,
                       is_partial ? ".partial" : ""),
          ShaderText({storage, is_partial ? "output_partial" : "output_stored", "math", "unit",
                      "dropout", "forward"},
                     {{"COLUMNS", variant.columns}}),
          "forward"};
}

Shader BackwardShader(core::DType dtype, std::uint32_t columns) {
  const std::string storage = std::string("storage_") + core::DTypeName(dtype);
  return {core::Format("backward.%s.c%u", core::DTypeName(dtype), columns),
          ShaderText({storage, "math", "unit", "dropout", "backward"}, {{"COLUMNS", columns}}),
          "backward"};
}

}  // namespace heed::webgpu
