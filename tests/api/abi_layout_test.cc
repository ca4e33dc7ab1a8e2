// The promises of the ABI: DLPack's layout, and the sizes of the first release.
#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "heed/heed.h"

namespace heed::test {
namespace {

#define HEED_SAME_FIELD(ours, our_field, theirs, their_field)                 \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) && \
                    sizeof(ours::our_field) == sizeof(theirs::their_field),   \
                #our_field)

static_assert(sizeof(heed_tensor_t) == sizeof(DLTensor));
static_assert(alignof(heed_tensor_t) == alignof(DLTensor));
HEED_SAME_FIELD(heed_tensor_t, data, DLTensor, data);
HEED_SAME_FIELD(heed_tensor_t, device, DLTensor, device);
HEED_SAME_FIELD(heed_tensor_t, ndim, DLTensor, ndim);
HEED_SAME_FIELD(heed_tensor_t, dtype, DLTensor, dtype);
HEED_SAME_FIELD(heed_tensor_t, shape, DLTensor, shape);
HEED_SAME_FIELD(heed_tensor_t, strides, DLTensor, strides);
HEED_SAME_FIELD(heed_tensor_t, byte_offset, DLTensor, byte_offset);
HEED_SAME_FIELD(heed_device_t, device_type, DLDevice, device_type);
HEED_SAME_FIELD(heed_device_t, device_id, DLDevice, device_id);
HEED_SAME_FIELD(heed_dtype_t, code, DLDataType, code);
HEED_SAME_FIELD(heed_dtype_t, bits, DLDataType, bits);
HEED_SAME_FIELD(heed_dtype_t, lanes, DLDataType, lanes);
static_assert(sizeof(heed_device_t) == sizeof(DLDevice));
static_assert(sizeof(heed_dtype_t) == sizeof(DLDataType));
static_assert(int{HEED_DEVICE_CPU} == int{kDLCPU});
static_assert(int{HEED_DEVICE_CUDA} == int{kDLCUDA});
static_assert(int{HEED_DEVICE_CUDA_HOST} == int{kDLCUDAHost});
static_assert(int{HEED_DEVICE_CUDA_MANAGED} == int{kDLCUDAManaged});
static_assert(int{HEED_DTYPE_INT} == int{kDLInt});
static_assert(int{HEED_DTYPE_UINT} == int{kDLUInt});
static_assert(int{HEED_DTYPE_FLOAT} == int{kDLFloat});
static_assert(int{HEED_DTYPE_BFLOAT} == int{kDLBfloat});

// A struct may grow at its end only, so a field never moves.
static_assert(sizeof(void*) != 8 || sizeof(heed_score_args_t) == 112);
static_assert(sizeof(void*) != 8 || sizeof(heed_varlen_args_t) == 56);
static_assert(sizeof(void*) != 8 || sizeof(heed_paging_args_t) == 16);
static_assert(sizeof(void*) != 8 || sizeof(heed_exec_args_t) == 88);
static_assert(sizeof(void*) != 8 || sizeof(heed_forward_args_t) == 88);
static_assert(sizeof(void*) != 8 || sizeof(heed_int8_args_t) == 64);
static_assert(sizeof(void*) != 8 || sizeof(heed_backward_args_t) == 80);
static_assert(sizeof(void*) != 8 || sizeof(heed_kv_quant_args_t) == 32);
static_assert(sizeof(void*) != 8 || sizeof(heed_decode_args_t) == 144);
static_assert(sizeof(void*) != 8 || sizeof(heed_combine_args_t) == 56);
static_assert(sizeof(void*) != 8 || sizeof(heed_quantize_kv_args_t) == 48);
static_assert(sizeof(void*) != 8 || sizeof(heed_dropout_mask_args_t) == 48);
static_assert(sizeof(void*) != 8 || sizeof(heed_session_config_t) == 96);
static_assert(sizeof(void*) != 8 || sizeof(heed_session_info_t) == 32);
static_assert(sizeof(void*) != 8 || sizeof(heed_plan_info_t) == 184);
static_assert(sizeof(void*) != 8 || sizeof(heed_device_errors_t) == 24);
static_assert(sizeof(void*) != 8 || sizeof(heed_allocator_t) == 32);
static_assert(sizeof(void*) != 8 || sizeof(heed_pack_args_t) == 104);

// A DLTensor that another library made is passed as it is.
TEST(AbiLayout, DlpackTensorsPassWithoutCopying) {
  float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float result[8] = {};
  std::int64_t shape[4] = {1, 1, 1, 8};
  DLTensor in = {values, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, nullptr, 0};
  DLTensor out = {result, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, nullptr, 0};
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  args.q = args.k = args.v = reinterpret_cast<const heed_tensor_t*>(&in);
  args.o = reinterpret_cast<const heed_tensor_t*>(&out);
  ASSERT_EQ(heed_forward(&args), HEED_OK) << heed_last_error();
  for (int d = 0; d < 8; ++d) EXPECT_FLOAT_EQ(result[d], values[d]);
}

TEST(AbiLayout, VersionAndStatusNames) {
  EXPECT_EQ(std::string(heed_version()), std::to_string(HEED_VERSION_MAJOR) + "." +
                                             std::to_string(HEED_VERSION_MINOR) + "." +
                                             std::to_string(HEED_VERSION_PATCH));
  EXPECT_STREQ(heed_status_name(HEED_OK), "HEED_OK");
  EXPECT_STREQ(heed_status_name(HEED_INTERNAL), "HEED_INTERNAL");
}

}  // namespace
}  // namespace heed::test
