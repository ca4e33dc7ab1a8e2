"""Attention with a key-value cache, as FlashAttention-2 and -3 call it."""

import torch

from heed import operations
from heed.compat import common


def _lengths(cache_seqlens, k_cache, block_table, batch, device):
    if cache_seqlens is None:
        full = k_cache.shape[1] * (block_table.shape[1] if block_table is not None else 1)
        cache_seqlens = full
    if isinstance(cache_seqlens, int):
        return torch.full((batch,), cache_seqlens, dtype=torch.int32, device=device)
    return cache_seqlens.to(torch.int32)


def attend_with_kvcache(q, k_cache, v_cache, k, v, *, rotary_cos, rotary_sin, rotary_interleaved,
                        cache_seqlens, cache_batch_idx, cache_leftpad, block_table, num_splits,
                        options):
    """(out, lse). Without k the caches already hold the keys of q: the last query sees the last
    key of cache_seqlens."""
    if k is None and rotary_cos is not None:
        raise ValueError("rotary_cos: needs the new keys k, which are rotated with q")
    cache = {"cache_batch_index": cache_batch_idx, "cache_leftpad": cache_leftpad,
             "block_table": block_table, "num_splits": num_splits}
    if rotary_cos is not None:
        cache.update(rotary_cos=rotary_cos.contiguous(), rotary_sin=rotary_sin.contiguous(),
                     rotary_layout="interleaved" if rotary_interleaved else "half_split")
    lengths = _lengths(cache_seqlens, k_cache, block_table, q.shape[0], q.device)
    with torch.no_grad():
        return operations.decode(
            common.contiguous_head_dim(q), k_cache, v_cache, lengths,
            common.contiguous_head_dim(k), common.contiguous_head_dim(v), return_lse=True,
            **{name: value for name, value in cache.items() if value is not None}, **options)
