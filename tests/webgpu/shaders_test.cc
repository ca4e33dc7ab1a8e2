// What the texts of the shaders may ask of a device, without a device.
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "webgpu/shader_source.h"

namespace heed::webgpu {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string WithoutComments(const std::string& text) {
  std::istringstream lines(text);
  std::string code, line;
  while (std::getline(lines, line)) code += line.substr(0, line.find("//")) + "\n";
  return code;
}

TEST(WebgpuShaders, LabelsAreTheKeysOfPipelines) {
  std::set<std::string> labels;
  std::set<std::string> texts;
  for (const Shader& shader : AllShaders()) {
    labels.insert(shader.label);
    texts.insert(shader.text);
    EXPECT_TRUE(Has(shader.text, "fn " + std::string(shader.entry_point) + "(")) << shader.label;
  }
  // 3 that move rows; 3 types x 4 columns x (2 outputs x (forward + 3 storages of decode) +
  // backward); wide tiles of 2 columns x 2 outputs x no, small and large subgroups, fp16 with and
  // without f16.
  EXPECT_EQ(labels.size(), 3u + 3u * 4u * 9u + 2u * 2u * 3u * (1u + 2u + 1u));
  EXPECT_EQ(texts.size(), labels.size());
}

// ggml-org/llama.cpp#23040: a workgroup laid out for subgroups of 32 is wrong where they are wider.
// No shader depends on their size, and none but those that say so in their label knows of subgroups
// or asks for an extension. None adds where another invocation does; the one shader with atomics
// sets bits of words whose other half may be another's.
TEST(WebgpuShaders, B214_NeedNoSubgroups) {
  for (const Shader& shader : AllShaders()) {
    const std::string code = WithoutComments(shader.text);
    EXPECT_EQ(Has(code, "subgroup"), Has(shader.label, ".subgroups")) << shader.label;
    EXPECT_EQ(Has(code, "enable f16;"), Has(shader.label, ".wide.f16")) << shader.label;
    for (const char* part :
         {"requires ", "subgroup_size", "subgroup_id", "atomicAdd", "atomicExchange"}) {
      EXPECT_FALSE(Has(code, part)) << shader.label << ": " << part;
    }
    EXPECT_EQ(Has(code, "atomic"), shader.label == "rows_scatter_halves") << shader.label;
  }
}

}  // namespace
}  // namespace heed::webgpu
