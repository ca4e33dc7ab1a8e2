// A program written against flash_attention_v2.h. Without a GPU its calls are refused, with one
// they are refused for their arguments: nothing is computed here.
#include <flash_attention_v2.h>
#include <heed/heed.h>

#include <cstdio>

#if defined(EXPECT_TOOLKIT) != defined(FLASH_ATTENTION_V2_HAS_RUNTIME)
#error "the toolkit's headers are not where the test thinks"
#endif

namespace {

int Fail(const char* what, cudaError_t error) {
  std::fprintf(stderr, "%s: error %d: %s\n", what, static_cast<int>(error), heed_last_error());
  return 1;
}

}  // namespace

int main() {
  FlashAttentionV2Config config = {1, 16, 2, 64, true, 0.0f, 0};
  if (!is_config_valid(config)) return Fail("a valid configuration", cudaSuccess);
  half element = {};
  half* const data = &element;
  cudaStream_t stream = nullptr;

  cudaError_t error = flash_attention_v2_forward(nullptr, data, data, data, data, config, stream);
  if (error != cudaErrorInvalidValue) return Fail("q = null", error);
  error = flash_attention_v2_backward(data, data, data, data, data, data, data, data, nullptr,
                                      config, FlashAttentionV2Layout::kRowsFirst, stream);
  if (error != cudaErrorInvalidValue) return Fail("dv = null", error);
  config.head_dim = 0;
  error = flash_attention_v2_forward(data, data, data, data, data, config);
  if (error != cudaErrorInvalidValue) return Fail("head_dim = 0", error);

  error = flash_attention_v2_init();
  if (error != cudaSuccess && error != cudaErrorDevicesUnavailable) return Fail("init", error);
  error = flash_attention_v2_cleanup();
  return error == cudaSuccess ? 0 : Fail("cleanup", error);
}
