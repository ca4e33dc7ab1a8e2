// heed_web_shaders FOLDER: the text of every shader that the library may compile, as
// FOLDER/<label>.wgsl, and FOLDER/index.json: [{"label", "entryPoint"}].
#include <cstdio>
#include <fstream>
#include <string>

#include "webgpu/shader_source.h"

namespace heed::webgpu {
namespace {

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) std::fprintf(stderr, "heed_web_shaders: cannot write %s\n", path.c_str());
  return !file.fail();
}

int WriteAll(const std::string& folder) {
  std::string index;
  for (const Shader& shader : AllShaders()) {
    if (!WriteFile(folder + "/" + shader.label + ".wgsl", shader.text)) return 1;
    index += (index.empty() ? "[\n" : ",\n") +
             core::Format("  {\"label\": \"%s\", \"entryPoint\": \"%s\"}", shader.label.c_str(),
                          shader.entry_point);
  }
  return WriteFile(folder + "/index.json", index + "\n]\n") ? 0 : 1;
}

}  // namespace
}  // namespace heed::webgpu

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: heed_web_shaders FOLDER\n");
    return 2;
  }
  return heed::webgpu::WriteAll(argv[1]);
}
