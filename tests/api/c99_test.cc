#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "heed/heed.h"

extern "C" int heed_c99_forward(float* values, float* result, std::int64_t head_dim);
extern "C" std::size_t heed_c99_total_bytes(void);
extern "C" const char* heed_c99_status_name(int status);
extern "C" int heed_c99_info(int format);
extern "C" int heed_c99_prepare(int op, const void* args);

namespace heed::test {
namespace {

TEST(C99, AProgramInCRuns) {
  float values[3] = {1.5f, -2.0f, 0.25f};
  float result[3] = {};
  ASSERT_EQ(heed_c99_forward(values, result, 3), HEED_OK) << heed_last_error();
  for (int d = 0; d < 3; ++d) EXPECT_FLOAT_EQ(result[d], values[d]);
}

TEST(C99, InitValuesCarryTheirSize) {
  EXPECT_EQ(
      heed_c99_total_bytes(),
      sizeof(heed_backward_args_t) + sizeof(heed_decode_args_t) + sizeof(heed_kv_quant_args_t) +
          sizeof(heed_combine_args_t) + sizeof(heed_quantize_kv_args_t) +
          sizeof(heed_dropout_mask_args_t) + sizeof(heed_session_config_t) +
          sizeof(heed_session_info_t) + sizeof(heed_plan_info_t) + sizeof(heed_device_errors_t) +
          sizeof(heed_paging_args_t) + sizeof(heed_pack_args_t) + sizeof(heed_tune_options_t));
}

TEST(C99, ValuesThatAreNoEnumerators) {
  const heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  for (const int bad : {-1, 6, 1000}) {
    EXPECT_EQ(heed_c99_prepare(bad, &args), HEED_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(heed_last_error()),
              "op = " + std::to_string(bad) + ": must be from 0 to 5");
    EXPECT_EQ(heed_c99_info(bad), HEED_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(heed_last_error()),
              "format = " + std::to_string(bad) + ": must be from 0 to 1");
  }
  EXPECT_STREQ(heed_c99_status_name(-1), "HEED_UNKNOWN_STATUS");
  EXPECT_STREQ(heed_c99_status_name(7), "HEED_UNKNOWN_STATUS");
  EXPECT_STREQ(heed_c99_status_name(6), "HEED_INTERNAL");
}

}  // namespace
}  // namespace heed::test
