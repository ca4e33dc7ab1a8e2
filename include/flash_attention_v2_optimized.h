/* Token generation with a key-value cache that stays on the device: a C interface of other
 * programs, defined in libheed. Programs written against it compile unchanged and link with
 * -lheed.
 *
 * One cache per process, [batch_heads, tokens, head_dim] for keys and values, in fp16: fp32 inputs
 * and outputs are rounded to it. batch_heads = sequences x heads, each with keys of its own; scale
 * 1 / sqrt(head_dim). The cache is on the first CUDA device or, where none can be used, in host
 * memory, and the CPU runs the same calls; the environment variable HEED_FLASH_ATTENTION_V2_OPT =
 * "cuda" or "cpu", read by init, allows one of the two only. Calls take turns, whichever threads
 * make them.
 *
 * Order: init, then load_qkv and decode_gpu token by token, get_output after decode_gpu; reset
 * starts anew. Functions that return int give 0 on success, else a heed_status_t, also for a call
 * in the wrong state, which changes nothing; heed_last_error() says why. */
#ifndef FLASH_ATTENTION_V2_OPTIMIZED_H_
#define FLASH_ATTENTION_V2_OPTIMIZED_H_

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FLASH_ATTENTION_V2_OPT_API __attribute__((visibility("default")))
#else
#define FLASH_ATTENTION_V2_OPT_API
#endif

/* Takes the memory. A second call gives the former memory back and starts again with other sizes;
 * where the new sizes cannot be had, nothing is initialized after it. Sizes below 1 change nothing.
 */
FLASH_ATTENTION_V2_OPT_API int flash_attention_v2_opt_init(int max_batch_heads, int max_cache_len,
                                                           int head_dim);
/* Gives the memory back. Without init it does nothing, and so do sync and reset. */
FLASH_ATTENTION_V2_OPT_API void flash_attention_v2_opt_cleanup(void);

/* Q, K, V: [batch_heads, head_dim] in host memory, which may change when the call returns. Appends
 * one token. batch_heads is at most max_batch_heads, and the same for every token since init or
 * reset. */
FLASH_ATTENTION_V2_OPT_API int flash_attention_v2_opt_load_qkv(const float* Q, const float* K,
                                                               const float* V, int batch_heads);
/* Attends the newest Q to every token. batch_heads: at most that of load_qkv. How keys are split is
 * planned from their number, whatever use_split_k says. */
FLASH_ATTENTION_V2_OPT_API int flash_attention_v2_opt_decode_gpu(int batch_heads, int use_split_k);
/* Waits for the output and copies its first batch_heads rows to O [batch_heads, head_dim]. */
FLASH_ATTENTION_V2_OPT_API int flash_attention_v2_opt_get_output(float* O, int batch_heads);
FLASH_ATTENTION_V2_OPT_API void flash_attention_v2_opt_sync(void);
/* Forgets every token. */
FLASH_ATTENTION_V2_OPT_API void flash_attention_v2_opt_reset(void);
/* Sizes given to init and the number of tokens; all 0 before it. Any pointer may be NULL. */
FLASH_ATTENTION_V2_OPT_API void flash_attention_v2_opt_info(int* initialized, int* max_cache,
                                                            int* max_bh, int* h_dim, int* seq_len);

/* One whole step: keeps the first cache_pos tokens (which must be there), appends K_new and V_new,
 * attends, and copies the output. Calls init itself, for 2048 tokens, when there was none or when,
 * at cache_pos 0, the sizes do not fit: then what is said of a second call holds. */
FLASH_ATTENTION_V2_OPT_API int flash_attention_v2_opt_decode(const float* Q, const float* K_new,
                                                             const float* V_new, float* O,
                                                             int batch_heads, int cache_pos,
                                                             int head_dim);

#ifdef __cplusplus
}
#endif

#endif /* FLASH_ATTENTION_V2_OPTIMIZED_H_ */
