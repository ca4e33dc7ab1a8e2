/* Causal attention with grouped heads through the C ABI, checked against a plain loop.
 *
 * Build against an installed heed: cc forward.c $(pkg-config --cflags --libs heed) -lm
 */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>

/* B batch, S tokens, Hq / Hkv query and key-value heads, D head dim. */
enum { B = 1, S = 100, HQ = 4, HKV = 2, D = 64 };

static float q[B][S][HQ][D];
static float k[B][S][HKV][D];
static float v[B][S][HKV][D];
static float o[B][S][HQ][D];

/* Numbers in [-1, 1) that look random; the same on every machine. */
static void fill(float* values, int num_elems, unsigned seed) {
  for (int i = 0; i < num_elems; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

/* A view of memory that stays the caller's. No strides means compact row-major. */
static heed_tensor_t view(float* data, int64_t shape[4]) {
  heed_tensor_t tensor = {0};
  tensor.data = data;
  tensor.device.device_type = HEED_DEVICE_CPU;
  tensor.ndim = 4;
  tensor.dtype.code = HEED_DTYPE_FLOAT;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

/* s = q.k / sqrt(D) of query i of head h and key j of the KV head that h shares. */
static double score(int h, int i, int j) {
  double dot = 0;
  for (int d = 0; d < D; ++d) dot += (double)q[0][i][h][d] * k[0][j][h / (HQ / HKV)][d];
  return dot / sqrt(D);
}

/* Element d of o for query i of head h: softmax over the keys 0..i, times v. */
static double expected(int h, int i, int d) {
  double sum = 0, weighted = 0;
  for (int j = 0; j <= i; ++j) {
    const double weight = exp(score(h, i, j)); /* |score| <= sqrt(D) = 8: exp cannot overflow */
    sum += weight;
    weighted += weight * v[0][j][h / (HQ / HKV)][d];
  }
  return weighted / sum;
}

/* Largest difference over every query and head, at some elements of each row. */
static double largest_error(void) {
  double largest = 0;
  for (int h = 0; h < HQ; ++h) {
    for (int i = 0; i < S; ++i) {
      for (int d = 0; d < D; d += 21) {
        largest = fmax(largest, fabs(o[0][i][h][d] - expected(h, i, d)));
      }
    }
  }
  return largest;
}

int main(void) {
  fill(&q[0][0][0][0], B * S * HQ * D, 1);
  fill(&k[0][0][0][0], B * S * HKV * D, 2);
  fill(&v[0][0][0][0], B * S * HKV * D, 3);

  int64_t q_shape[4] = {B, S, HQ, D};
  int64_t kv_shape[4] = {B, S, HKV, D};
  const heed_tensor_t q_view = view(&q[0][0][0][0], q_shape);
  const heed_tensor_t k_view = view(&k[0][0][0][0], kv_shape);
  const heed_tensor_t v_view = view(&v[0][0][0][0], kv_shape);
  const heed_tensor_t o_view = view(&o[0][0][0][0], q_shape);

  /* INIT values switch everything off; scale is 1 / sqrt(D) unless set. */
  heed_score_args_t score_args = HEED_SCORE_ARGS_INIT;
  score_args.causal = HEED_CAUSAL_ON;

  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  args.q = &q_view;
  args.k = &k_view;
  args.v = &v_view;
  args.o = &o_view;
  args.score = &score_args;

  if (heed_forward(&args) != HEED_OK) {
    fprintf(stderr, "heed_forward: %s\n", heed_last_error());
    return 1;
  }
  /* fp32 rounding of about S * D terms below 1 stays well under this bound. */
  const double bound = 1e-5;
  const double error = largest_error();
  printf("heed %s: largest difference from a plain loop %.2e, bound %.0e\n", heed_version(), error,
         bound);
  return error < bound ? 0 : 1;
}
