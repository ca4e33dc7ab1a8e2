#include "webgpu/shader_source.h"

#include <utility>

#include "device/constants.h"
#include "device/philox.h"
#include "webgpu/unit_layout.h"

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

constexpr const char* kEnableF16 = "enable_f16";

const char* KeysFile(KeyStorage keys) {
  switch (keys) {
    case KeyStorage::kFp32:
      return "keys_fp32";
    case KeyStorage::kInt8:
      return "keys_int8";
    case KeyStorage::kStored:
      break;
  }
  return "keys_stored";
}

// Those that wide tiles make of a plain shader.
std::vector<Shader> WideShaders(const ForwardVariant& plain) {
  std::vector<Shader> shaders;
  if (plain.columns > kMaxWideColumns) return shaders;
  for (const bool has_f16 : {false, true}) {
    if (has_f16 && plain.dtype != core::DType::kF16) continue;
    for (const std::uint32_t lanes : {0u, kFewLanes, kManyLanes}) {
      ForwardVariant variant = plain;
      variant.features = {true, has_f16, lanes > 0};
      variant.subgroup_lanes = lanes;
      shaders.push_back(ForwardShader(variant));
    }
  }
  return shaders;
}

}  // namespace

std::string ShaderText(const std::vector<std::string>& files,
                       std::initializer_list<ShaderConstant> constants) {
  std::string text;
  if (files.front() == kEnableF16) text += FindText(kEnableF16);
  text += SharedConstants();
  for (const ShaderConstant& constant : constants) {
    text += core::Format("const %s: u32 = %uu;\n", constant.name, constant.value);
  }
  for (const std::string& file : files) {
    if (file != kEnableF16) text += FindText(file);
  }
  return text;
}

Shader ForwardShader(const ForwardVariant& variant) {
  const char* dtype = core::DTypeName(variant.dtype);
  const bool is_partial = variant.output == Output::kPartial;
  const bool is_decode = variant.use == ForwardUse::kDecode;
  const Features& features = variant.features;
  const std::string keys = KeysFile(variant.keys);
  std::string label = core::Format("%s.%s.%s.c%u%s", is_decode ? "decode" : "forward", dtype,
                                   keys.c_str(), variant.columns, is_partial ? ".partial" : "");
  std::vector<std::string> files = {std::string("storage_") + dtype,
                                    is_decode ? "queries_fp32" : "queries_stored",
                                    keys,
                                    is_partial ? "output_partial" : "output_stored",
                                    "math",
                                    "unit",
                                    "dropout",
                                    "scores"};
  if (!features.has_wide_tiles) {
    files.insert(files.end(), {"tile", "forward"});
    return {label,
            ShaderText(files, {{"COLUMNS", variant.columns},
                               {"TILE_ROWS", static_cast<std::uint32_t>(is_decode ? kDecodeTileRows
                                                                                  : kTileRows)}}),
            "forward"};
  }
  label += ".wide";
  if (features.has_f16) {
    label += ".f16";
    files.insert(files.begin(), kEnableF16);
  }
  const char* rows_file = "rows_shared";
  const bool has_many_lanes = features.has_subgroups && variant.subgroup_lanes >= kManyLanes;
  if (features.has_subgroups) {
    label += has_many_lanes ? ".subgroups16" : ".subgroups8";
    rows_file = has_many_lanes ? "rows_subgroups16" : "rows_subgroups8";
  }
  files.insert(files.end(),
               {features.has_f16 ? "staged_fp16" : "staged_fp32", "forward_wide", rows_file});
  // 16384 bytes of workgroup memory at most; staged halves leave room for exchanged numbers.
  const std::uint32_t staged_vectors = features.has_f16 && has_many_lanes ? 2048 : 1024;
  return {label,
          ShaderText(files, {{"COLUMNS", variant.columns}, {"STAGED_VECTORS", staged_vectors}}),
          "forward"};
}

Shader BackwardShader(core::DType dtype, std::uint32_t columns) {
  const std::string storage = std::string("storage_") + core::DTypeName(dtype);
  return {core::Format("backward.%s.c%u", core::DTypeName(dtype), columns),
          ShaderText({storage, "queries_stored", "keys_stored", "math", "unit", "dropout", "tile",
                      "backward"},
                     {{"COLUMNS", columns}, {"TILE_ROWS", kTileRows}}),
          "backward"};
}

Shader RowShader(RowPass pass) {
  const bool is_gather = pass == RowPass::kGather;
  const char* name = is_gather                        ? "rows_gather"
                     : pass == RowPass::kScatterWords ? "rows_scatter_words"
                                                      : "rows_scatter_halves";
  if (is_gather) return {name, ShaderText({"rows", name}, {}), "gather"};
  return {name, ShaderText({"rows", name, "rows_scatter"}, {}), "scatter"};
}

std::vector<Shader> AllShaders() {
  std::vector<Shader> shaders;
  for (const RowPass pass : {RowPass::kGather, RowPass::kScatterWords, RowPass::kScatterHalves}) {
    shaders.push_back(RowShader(pass));
  }
  for (const core::DType dtype : {core::DType::kF32, core::DType::kF16, core::DType::kBF16}) {
    for (std::uint32_t columns = 1; columns <= kMaxColumns; ++columns) {
      for (const Output output : {Output::kStored, Output::kPartial}) {
        shaders.push_back(ForwardShader({dtype, columns, output}));
        for (Shader& shader : WideShaders({dtype, columns, output})) {
          shaders.push_back(std::move(shader));
        }
        for (const KeyStorage keys : {KeyStorage::kStored, KeyStorage::kFp32, KeyStorage::kInt8}) {
          shaders.push_back(ForwardShader({dtype, columns, output, ForwardUse::kDecode, keys}));
        }
      }
      shaders.push_back(BackwardShader(dtype, columns));
    }
  }
  return shaders;
}

}  // namespace heed::webgpu
