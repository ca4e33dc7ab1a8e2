/* heed.h as a C99 program sees it. Compiled with -std=c99 -pedantic -Werror. */
#include "heed/heed.h"

int heed_c99_forward(float* values, float* result, int64_t head_dim);

/* One query, one key: the result is the value row. */
int heed_c99_forward(float* values, float* result, int64_t head_dim) {
  int64_t shape[4] = {1, 1, 1, 0};
  heed_tensor_t in = {NULL, {HEED_DEVICE_CPU, 0}, 4, {HEED_DTYPE_FLOAT, 32, 1}, NULL, NULL, 0};
  heed_tensor_t out;
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  heed_varlen_args_t varlen = HEED_VARLEN_ARGS_INIT;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  shape[3] = head_dim;
  in.data = values;
  in.shape = shape;
  out = in;
  out.data = result;
  score.causal = HEED_CAUSAL_ON;
  args.q = args.k = args.v = &in;
  args.o = &out;
  args.score = &score;
  args.varlen = &varlen;
  args.exec = &exec;
  return (int)heed_forward(&args);
}

/* Values that are no enumerators, which only a C program can pass. */
const char* heed_c99_status_name(int status);
const char* heed_c99_status_name(int status) { return heed_status_name((heed_status_t)status); }

int heed_c99_info(int format);
int heed_c99_info(int format) { return (int)heed_info((heed_info_format_t)format, NULL, 0, NULL); }

int heed_c99_prepare(int op, const void* args);
int heed_c99_prepare(int op, const void* args) { return (int)heed_prepare((heed_op_t)op, args); }

/* Every INIT value is a constant of its type. */
static const heed_backward_args_t kBackward = HEED_BACKWARD_ARGS_INIT;
static const heed_decode_args_t kDecode = HEED_DECODE_ARGS_INIT;
static const heed_kv_quant_args_t kQuant = HEED_KV_QUANT_ARGS_INIT;
static const heed_combine_args_t kCombine = HEED_COMBINE_ARGS_INIT;
static const heed_quantize_kv_args_t kQuantize = HEED_QUANTIZE_KV_ARGS_INIT;
static const heed_dropout_mask_args_t kDropoutMask = HEED_DROPOUT_MASK_ARGS_INIT;
static const heed_session_config_t kSession = HEED_SESSION_CONFIG_INIT;
static const heed_session_info_t kSessionInfo = HEED_SESSION_INFO_INIT;
static const heed_pack_args_t kPack = HEED_PACK_ARGS_INIT;
static const heed_tune_options_t kTune = HEED_TUNE_OPTIONS_INIT;
static const heed_plan_info_t kPlan = HEED_PLAN_INFO_INIT;
static const heed_device_errors_t kErrors = HEED_DEVICE_ERRORS_INIT;
static const heed_paging_args_t kPaging = HEED_PAGING_ARGS_INIT;

size_t heed_c99_total_bytes(void);
size_t heed_c99_total_bytes(void) {
  return kBackward.struct_size + kDecode.struct_size + kQuant.struct_size + kCombine.struct_size +
         kQuantize.struct_size + kDropoutMask.struct_size + kSession.struct_size +
         kSessionInfo.struct_size + kPlan.struct_size + kErrors.struct_size + kPaging.struct_size +
         kPack.struct_size + kTune.struct_size;
}
