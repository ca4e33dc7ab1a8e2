#include <gtest/gtest.h>

#include <cstdint>

#include "heed/heed.h"

extern "C" int heed_c99_forward(float* values, float* result, std::int64_t head_dim);
extern "C" std::size_t heed_c99_total_bytes(void);

namespace heed::test {
namespace {

TEST(C99, AProgramInCRuns) {
  float values[3] = {1.5f, -2.0f, 0.25f};
  float result[3] = {};
  ASSERT_EQ(heed_c99_forward(values, result, 3), HEED_OK) << heed_last_error();
  for (int d = 0; d < 3; ++d) EXPECT_FLOAT_EQ(result[d], values[d]);
}

TEST(C99, InitValuesCarryTheirSize) {
  EXPECT_EQ(heed_c99_total_bytes(), sizeof(heed_backward_args_t) + sizeof(heed_decode_args_t) +
                                        sizeof(heed_kv_quant_args_t) + sizeof(heed_combine_args_t) +
                                        sizeof(heed_quantize_kv_args_t) +
                                        sizeof(heed_dropout_mask_args_t) +
                                        sizeof(heed_session_config_t) +
                                        sizeof(heed_session_info_t) + sizeof(heed_plan_info_t) +
                                        sizeof(heed_device_errors_t) + sizeof(heed_paging_args_t));
}

}  // namespace
}  // namespace heed::test
