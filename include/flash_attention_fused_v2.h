/* FlashAttention for int8 queries, keys and values on the CPU: a C interface of other programs,
 * defined in libheed. Programs written against it compile unchanged and link with -lheed.
 *
 * One head: Q, K, V are int8 [L, head_dim], row-major. O is fp32 [L, head_dim], logsumexp fp32 [L],
 * natural log, or NULL:
 *   s = Q K^T / sqrt(head_dim) on the raw integers,   O = softmax(s) V,   logsumexp = log sum exp s
 * Any L >= 1 and 1 <= head_dim <= 65536. Scores are exact integers, the softmax is fixed-point
 * (docs/numerics.md says how far O may be off), and the result has the same bits on every
 * instruction set and for every number of threads. HEED_NUM_THREADS sets the threads, else one per
 * core; HEED_CPU_TARGET the instruction set, else the best.
 *
 * Errors: a call that cannot run (null pointer, head_dim out of range, no memory, an environment
 * variable without a legal value) fills O and logsumexp with NaN where it can; heed_last_error()
 * says why. L <= 0 does nothing. */
#ifndef FLASH_ATTENTION_FUSED_V2_H_
#define FLASH_ATTENTION_FUSED_V2_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FA_TILE_BR 48 /* query rows of a tile */
#define FA_TILE_BC 64 /* keys of a block */

#if defined(__GNUC__)
#define FLASH_ATTENTION_FUSED_API __attribute__((visibility("default")))
#else
#define FLASH_ATTENTION_FUSED_API
#endif

FLASH_ATTENTION_FUSED_API void flash_attention_fused_forward(const int8_t* Q, const int8_t* K,
                                                             const int8_t* V, float* O,
                                                             float* logsumexp, int64_t L,
                                                             int64_t head_dim);

/* The same for keys and values packed once by the functions below. */
FLASH_ATTENTION_FUSED_API void flash_attention_fused_forward_packed(const int8_t* Q,
                                                                    const int8_t* Kp,
                                                                    const int8_t* Vp, float* O,
                                                                    float* logsumexp, int64_t L,
                                                                    int64_t head_dim);

/* Kp [ceil(L / 64)][ceil(head_dim / 4)][64 keys][4 elements],
 * Vp [ceil(head_dim / 64)][ceil(L / 4)][64 elements][4 keys]; padding bytes are 0. */
FLASH_ATTENTION_FUSED_API void pack_k_for_flash_attention(const int8_t* K, int8_t* Kp, int64_t L,
                                                          int64_t head_dim);
FLASH_ATTENTION_FUSED_API void pack_v_for_flash_attention(const int8_t* V, int8_t* Vp, int64_t L,
                                                          int64_t head_dim);

/* Bytes of Kp and Vp: 256 for 64 groups of 4. */
static inline size_t flash_kp_size(int64_t L, int64_t head_dim) {
  return (size_t)((L + 63) / 64) * (size_t)((head_dim + 3) / 4) * 256;
}
static inline size_t flash_vp_size(int64_t L, int64_t head_dim) {
  return (size_t)((head_dim + 63) / 64) * (size_t)((L + 3) / 4) * 256;
}

/* Aligned to 64 bytes; NULL when out of memory. */
FLASH_ATTENTION_FUSED_API void* flash_aligned_alloc(size_t size_bytes);
FLASH_ATTENTION_FUSED_API void flash_aligned_free(void* ptr);

#ifdef __cplusplus
}
#endif

#endif /* FLASH_ATTENTION_FUSED_V2_H_ */
