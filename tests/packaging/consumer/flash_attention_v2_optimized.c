/* A generation loop as programs for flash_attention_v2_optimized.h write it: nothing else of heed
 * is named. C99 and C++. */
#include "flash_attention_v2_optimized.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kHeads = 14, kDim = 64, kTokens = 300 };

static float q[kHeads * kDim], k[kTokens][kHeads * kDim], v[kTokens][kHeads * kDim];
static float o[kHeads * kDim];

static float draw(void) { return (float)(rand() % 2048 - 1024) / 512.0f; } /* fp16 holds it */

/* Largest distance from attention of q over the first `count` tokens. */
static double error_of(int count) {
  double worst = 0.0;
  for (int head = 0; head < kHeads; ++head) {
    double sum = 0.0, row[kDim] = {0};
    for (int j = 0; j < count; ++j) {
      double dot = 0.0;
      for (int d = 0; d < kDim; ++d) dot += (double)q[head * kDim + d] * k[j][head * kDim + d];
      double weight = exp(dot / sqrt((double)kDim));
      sum += weight;
      for (int d = 0; d < kDim; ++d) row[d] += weight * v[j][head * kDim + d];
    }
    for (int d = 0; d < kDim; ++d) worst = fmax(worst, fabs(row[d] / sum - o[head * kDim + d]));
  }
  return worst;
}

int main(void) {
  int initialized = 0, max_cache = 0, max_bh = 0, h_dim = 0, seq_len = 0;
  if (flash_attention_v2_opt_init(kHeads, 512, kDim) != 0) return 1;
  for (int t = 0; t < kTokens; ++t) {
    for (int n = 0; n < kHeads * kDim; ++n) {
      q[n] = draw();
      k[t][n] = draw();
      v[t][n] = draw();
    }
    if (flash_attention_v2_opt_load_qkv(q, k[t], v[t], kHeads) != 0) return 2;
    if (flash_attention_v2_opt_decode_gpu(kHeads, t > 256) != 0) return 3;
  }
  flash_attention_v2_opt_sync();
  if (flash_attention_v2_opt_get_output(o, kHeads) != 0) return 4;
  printf("largest error over %d tokens: %g\n", kTokens, error_of(kTokens));
  if (!(error_of(kTokens) < 0.01)) return 5;
  flash_attention_v2_opt_info(&initialized, &max_cache, &max_bh, &h_dim, &seq_len);
  if (initialized != 1 || max_cache != 512 || max_bh != kHeads || h_dim != kDim) return 6;
  if (seq_len != kTokens) return 7;
  flash_attention_v2_opt_reset();
  if (flash_attention_v2_opt_decode_gpu(kHeads, 0) == 0) return 8;
  flash_attention_v2_opt_cleanup();

  for (int t = 0; t < 5; ++t) {
    if (flash_attention_v2_opt_decode(q, k[t], v[t], o, kHeads, t, kDim) != 0) return 9;
  }
  if (!(error_of(5) < 0.01)) return 10;
  flash_attention_v2_opt_cleanup();
  return 0;
}
