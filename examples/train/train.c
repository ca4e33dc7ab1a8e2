/* A training loop on the CPU: heed_forward, a loss, heed_backward, Adam steps.
 *
 * One attention layer learns to look up: a sequence holds S pairs of a key, one of S names in
 * random order, and a value, D random numbers; asked for a name, the layer shall give the value
 * beside it. Names become queries by table wq and keys by table wk, values become v by matrix wv;
 * outputs of the heads are summed. Untrained, attention averages all values and the loss is near 1,
 * their variance.
 *
 * Build against an installed heed: cc train.c $(pkg-config --cflags --libs heed) -lm
 */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* B sequences a step, S pairs and S questions of a sequence, H heads, D head dim. */
enum { B = 8, S = 24, H = 2, D = 16, NUM_STEPS = 300 };

/* Parameters, their gradients, and the running moments of Adam. */
struct params {
  float wq[S][H][D], wk[S][H][D], wv[D][H][D];
};
static struct params weights, gradient, moment, square;
enum { NUM_PARAMS = sizeof(struct params) / sizeof(float) };

static float q[B][S][H][D], k[B][S][H][D], v[B][S][H][D], o[B][S][H][D], lse[B][H][S];
static float d_o[B][S][H][D], dq[B][S][H][D], dk[B][S][H][D], dv[B][S][H][D];
static int asked[B][S], named[B][S]; /* name of question i, name of pair j */
static float value[B][S][D];         /* of pair j */

/* Uniform in [-1, 1); the same numbers on every machine. */
static float uniform(void) {
  static unsigned state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static heed_tensor_t view(float* data, int ndim, int64_t* shape) {
  heed_tensor_t tensor = {0};
  tensor.data = data;
  tensor.device.device_type = HEED_DEVICE_CPU;
  tensor.ndim = ndim;
  tensor.dtype.code = HEED_DTYPE_FLOAT;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

static void draw_batch(void) {
  for (int b = 0; b < B; ++b) {
    for (int i = 0; i < S; ++i) named[b][i] = asked[b][i] = i;
    for (int i = S - 1; i > 0; --i) { /* shuffle */
      const int j = (int)((uniform() + 1.0f) / 2.0f * (float)(i + 1));
      const int name = named[b][i];
      named[b][i] = named[b][j];
      named[b][j] = name;
    }
    /* sqrt(3) uniform has variance 1. */
    for (int j = 0; j < S; ++j) {
      for (int d = 0; d < D; ++d) value[b][j][d] = 1.7320508f * uniform();
    }
  }
}

static void embed(void) {
  for (int b = 0; b < B; ++b) {
    for (int i = 0; i < S; ++i) {
      for (int h = 0; h < H; ++h) {
        for (int d = 0; d < D; ++d) {
          q[b][i][h][d] = weights.wq[asked[b][i]][h][d];
          k[b][i][h][d] = weights.wk[named[b][i]][h][d];
          float sum = 0.0f;
          for (int e = 0; e < D; ++e) sum += value[b][i][e] * weights.wv[e][h][d];
          v[b][i][h][d] = sum;
        }
      }
    }
  }
}

/* Mean square difference to the value asked for; its gradient goes to d_o. */
static double loss_of_batch(void) {
  double loss = 0.0;
  for (int b = 0; b < B; ++b) {
    int pair[S]; /* of a name */
    for (int j = 0; j < S; ++j) pair[named[b][j]] = j;
    for (int i = 0; i < S; ++i) {
      for (int d = 0; d < D; ++d) {
        float off = -value[b][pair[asked[b][i]]][d];
        for (int h = 0; h < H; ++h) off += o[b][i][h][d];
        loss += (double)off * off / (B * S * D);
        for (int h = 0; h < H; ++h) d_o[b][i][h][d] = 2.0f * off / (B * S * D);
      }
    }
  }
  return loss;
}

/* dq, dk, dv to gradients of the parameters, then a step of Adam. */
static void learn(int step) {
  gradient = (struct params){0};
  for (int b = 0; b < B; ++b) {
    for (int i = 0; i < S; ++i) {
      for (int h = 0; h < H; ++h) {
        for (int d = 0; d < D; ++d) {
          gradient.wq[asked[b][i]][h][d] += dq[b][i][h][d];
          gradient.wk[named[b][i]][h][d] += dk[b][i][h][d];
          for (int e = 0; e < D; ++e) gradient.wv[e][h][d] += value[b][i][e] * dv[b][i][h][d];
        }
      }
    }
  }
  const float rate = 0.03f, keep_moment = 0.9f, keep_square = 0.99f;
  const float moment_share = 1.0f - powf(keep_moment, (float)step);
  const float square_share = 1.0f - powf(keep_square, (float)step);
  float *w = &weights.wq[0][0][0], *g = &gradient.wq[0][0][0];
  float *m = &moment.wq[0][0][0], *s = &square.wq[0][0][0];
  for (int n = 0; n < NUM_PARAMS; ++n) {
    m[n] = keep_moment * m[n] + (1.0f - keep_moment) * g[n];
    s[n] = keep_square * s[n] + (1.0f - keep_square) * g[n] * g[n];
    w[n] -= rate * (m[n] / moment_share) / (sqrtf(s[n] / square_share) + 1e-8f);
  }
}

static void require(heed_status_t status) {
  if (status == HEED_OK) return;
  fprintf(stderr, "heed: %s\n", heed_last_error());
  exit(1);
}

int main(void) {
  float* w = &weights.wq[0][0][0];
  for (int n = 0; n < NUM_PARAMS; ++n) w[n] = 0.3f * uniform();

  int64_t shape[4] = {B, S, H, D}, lse_shape[3] = {B, H, S};
  const heed_tensor_t q_view = view(&q[0][0][0][0], 4, shape);
  const heed_tensor_t k_view = view(&k[0][0][0][0], 4, shape);
  const heed_tensor_t v_view = view(&v[0][0][0][0], 4, shape);
  const heed_tensor_t o_view = view(&o[0][0][0][0], 4, shape);
  const heed_tensor_t lse_view = view(&lse[0][0][0], 3, lse_shape);
  const heed_tensor_t d_o_view = view(&d_o[0][0][0][0], 4, shape);
  const heed_tensor_t dq_view = view(&dq[0][0][0][0], 4, shape);
  const heed_tensor_t dk_view = view(&dk[0][0][0][0], 4, shape);
  const heed_tensor_t dv_view = view(&dv[0][0][0][0], 4, shape);
  heed_forward_args_t forward = HEED_FORWARD_ARGS_INIT;
  forward.q = &q_view;
  forward.k = &k_view;
  forward.v = &v_view;
  forward.o = &o_view;
  forward.lse = &lse_view; /* what the backward pass recomputes the softmax from */
  heed_backward_args_t backward = HEED_BACKWARD_ARGS_INIT;
  backward.forward = &forward;
  backward.d_o = &d_o_view;
  backward.dq = &dq_view;
  backward.dk = &dk_view;
  backward.dv = &dv_view;

  double first = 0.0, loss = 0.0;
  for (int step = 1; step <= NUM_STEPS; ++step) {
    draw_batch();
    embed();
    require(heed_forward(&forward));
    loss = loss_of_batch();
    require(heed_backward(&backward));
    learn(step);
    if (step == 1) first = loss;
    if (step == 1 || step % 50 == 0) printf("step %3d  loss %.6f\n", step, loss);
  }
  if (!(loss < 0.02 * first)) {
    fprintf(stderr, "the loss did not fall to 2 %% of %.6f\n", first);
    return 1;
  }
  return 0;
}
