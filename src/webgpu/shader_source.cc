#include "webgpu/shader_source.h"

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

}  // namespace

std::string ShaderText(const std::vector<std::string>& files,
                       std::initializer_list<ShaderConstant> constants) {
  std::string text = SharedConstants();
  for (const ShaderConstant& constant : constants) {
    text += core::Format("const %s: u32 = %uu;\n", constant.name, constant.value);
  }
  for (const std::string& file : files) text += FindText(file);
  return text;
}

Shader ForwardShader(const ForwardVariant& variant) {
  const char* dtype = core::DTypeName(variant.dtype);
  const bool is_partial = variant.output == Output::kPartial;
  const bool is_decode = variant.use == ForwardUse::kDecode;
  const std::string keys = KeysFile(variant.keys);
  return {
      core::Format("%s.%s.%s.c%u%s", is_decode ? "decode" : "forward", dtype, keys.c_str(),
                   variant.columns, is_partial ? ".partial" : ""),
      ShaderText(
          {std::string("storage_") + dtype, is_decode ? "queries_fp32" : "queries_stored", keys,
           is_partial ? "output_partial" : "output_stored", "math", "unit", "dropout", "forward"},
          {{"COLUMNS", variant.columns},
           {"TILE_ROWS", static_cast<std::uint32_t>(is_decode ? kDecodeTileRows : kTileRows)}}),
      "forward"};
}

Shader BackwardShader(core::DType dtype, std::uint32_t columns) {
  const std::string storage = std::string("storage_") + core::DTypeName(dtype);
  return {
      core::Format("backward.%s.c%u", core::DTypeName(dtype), columns),
      ShaderText({storage, "queries_stored", "keys_stored", "math", "unit", "dropout", "backward"},
                 {{"COLUMNS", columns}, {"TILE_ROWS", kTileRows}}),
      "backward"};
}

Shader RowShader(RowPass pass) {
  const bool is_gather = pass == RowPass::kGather;
  const char* name = is_gather                        ? "rows_gather"
                     : pass == RowPass::kScatterWords ? "rows_scatter_words"
                                                      : "rows_scatter_halves";
  return {name, ShaderText({"rows", name}, {}), is_gather ? "gather" : "scatter"};
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
