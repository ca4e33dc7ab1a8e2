// Without a usable library the backend is unavailable, with the reason and the remedy. CTest sets
// HEED_WEBGPU_LIBRARY to a file that is not there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "support/attention_call.h"

namespace heed::test {
namespace {

TEST(WebgpuUnavailable, NamesTheLibraryAndTheRemedy) {
  const char* library = std::getenv("HEED_WEBGPU_LIBRARY");
  ASSERT_NE(library, nullptr);
  AttentionCall call(Element::kF32, {1, 2, 1, 8}, {1, 2, 1, 8}, {1, 2, 1, 8});
  call.exec.backend = HEED_BACKEND_WEBGPU;
  call.ExpectRefused(HEED_UNAVAILABLE,
                     {"the WebGPU backend: ", "HEED_WEBGPU_LIBRARY names a library", library});
  std::vector<char> text(1 << 16);
  ASSERT_EQ(heed_info(HEED_INFO_TEXT, text.data(), text.size(), nullptr), HEED_OK);
  EXPECT_NE(std::string(text.data()).find("  webgpu     unavailable: HEED_WEBGPU_LIBRARY"),
            std::string::npos)
      << text.data();
  ASSERT_EQ(heed_info(HEED_INFO_JSON, text.data(), text.size(), nullptr), HEED_OK);
  EXPECT_NE(std::string(text.data()).find("\"webgpu_adapter\": null"), std::string::npos);
}

}  // namespace
}  // namespace heed::test
