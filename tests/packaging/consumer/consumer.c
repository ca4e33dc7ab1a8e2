/* A C99 program that uses an installed heed: one tiny forward whose result is known. */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>

/* Two keys with equal scores: the output is the mean of the two value rows. */
static int mean_of_two_values(void) {
  float q[2] = {1.0f, -1.0f}, k[4] = {0.5f, 0.5f, 0.5f, 0.5f}, v[4] = {1.0f, 10.0f, 3.0f, 20.0f};
  float o[2] = {0.0f, 0.0f}, lse = 0.0f;
  int64_t q_shape[4] = {1, 1, 1, 2}, kv_shape[4] = {1, 2, 1, 2}, lse_shape[3] = {1, 1, 1};
  heed_device_t cpu = {HEED_DEVICE_CPU, 0};
  heed_dtype_t fp32 = {HEED_DTYPE_FLOAT, 32, 1};
  heed_tensor_t tq = {0}, tk = {0}, tv = {0}, to = {0}, tlse = {0};
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  heed_tensor_t* all[5];
  void* data[5];
  int i;

  all[0] = &tq, all[1] = &tk, all[2] = &tv, all[3] = &to, all[4] = &tlse;
  data[0] = q, data[1] = k, data[2] = v, data[3] = o, data[4] = &lse;
  for (i = 0; i < 5; ++i) {
    all[i]->data = data[i];
    all[i]->device = cpu;
    all[i]->dtype = fp32;
    all[i]->ndim = i == 4 ? 3 : 4;
    all[i]->shape = i == 4 ? lse_shape : (i == 1 || i == 2) ? kv_shape : q_shape;
  }
  args.q = &tq, args.k = &tk, args.v = &tv, args.o = &to, args.lse = &tlse;
  if (heed_forward(&args) != HEED_OK) {
    fprintf(stderr, "heed_forward: %s\n", heed_last_error());
    return 1;
  }
  printf("heed %s: o = (%g, %g), lse = %g\n", heed_version(), o[0], o[1], lse);
  return !(fabsf(o[0] - 2.0f) < 1e-6f && fabsf(o[1] - 15.0f) < 1e-5f &&
           fabsf(lse - logf(2.0f)) < 1e-6f);
}

int main(void) { return mean_of_two_values(); }
