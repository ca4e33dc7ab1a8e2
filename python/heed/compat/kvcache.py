"""Attention with a key-value cache, as FlashAttention-2 and -3 call it."""

import torch

from heed import operations
from heed.compat import common
from heed.compat.flash_attn.layers.rotary import apply_rotary_emb


def _lengths(cache_seqlens, k_cache, block_table, batch, device):
    if cache_seqlens is None:
        full = k_cache.shape[1] * (block_table.shape[1] if block_table is not None else 1)
        cache_seqlens = full
    if isinstance(cache_seqlens, int):
        return torch.full((batch,), cache_seqlens, dtype=torch.int32, device=device)
    return cache_seqlens.to(torch.int32)


def _append(cache, rows, lengths, cache_batch_idx, block_table):
    """Writes rows (b,snew,hk,d) into a cache behind the first `lengths` slots of each sequence."""
    position = lengths.long()[:, None] + torch.arange(rows.shape[1], device=rows.device)
    if block_table is not None:
        page, slot = position // cache.shape[1], position % cache.shape[1]
        row = block_table.long().gather(1, page)
    else:
        row = torch.arange(rows.shape[0], device=rows.device) if cache_batch_idx is None else (
            cache_batch_idx.long())
        row, slot = row[:, None], position
    cache[row, slot] = rows


def _rotate(q, k, lengths, rotary, is_ordered):
    """q and k turned by their positions; all queries by the first one's where they have no order,
    as FlashAttention does without causal and window."""
    def turn(x):
        return apply_rotary_emb(x, rotary["rotary_cos"], rotary["rotary_sin"],
                                interleaved=rotary["rotary_layout"] == "interleaved",
                                seqlen_offsets=lengths)
    if is_ordered:
        return turn(q), turn(k)
    return turn(q.flatten(1, 2)[:, None]).view(q.shape), turn(k)


def attend_with_kvcache(q, k_cache, v_cache, k, v, *, rotary_cos, rotary_sin, rotary_interleaved,
                        cache_seqlens, cache_batch_idx, cache_leftpad, block_table, num_splits,
                        options):
    """(out, lse). Without k the caches already hold the keys of q: the last query sees the last
    key of cache_seqlens. What heed's one kernel does not define, other numbers of queries than of
    new keys and queries that are rotated alike, is rotated and appended by torch first."""
    if k is None and rotary_cos is not None:
        raise ValueError("rotary_cos: needs the new keys k, which are rotated with q")
    cache = {"cache_batch_index": cache_batch_idx, "cache_leftpad": cache_leftpad,
             "block_table": block_table, "num_splits": num_splits}
    rotary = {}
    if rotary_cos is not None:
        rotary = {"rotary_cos": rotary_cos.contiguous(), "rotary_sin": rotary_sin.contiguous(),
                  "rotary_layout": "interleaved" if rotary_interleaved else "half_split"}
    lengths = _lengths(cache_seqlens, k_cache, block_table, q.shape[0], q.device)
    is_ordered = q.shape[1] == 1 or "causal" in options or "window" in options
    with torch.no_grad():
        if k is not None and (k.shape[1] != q.shape[1] or (rotary and not is_ordered)):
            if rotary:
                q, k = _rotate(q, k, lengths, rotary, is_ordered)
            _append(k_cache, k, lengths, cache_batch_idx, block_table)
            _append(v_cache, v, lengths, cache_batch_idx, block_table)
            lengths = lengths + k.shape[1]
            k, v, rotary = None, None, {}
        return operations.decode(
            common.contiguous_head_dim(q), k_cache, v_cache, lengths,
            common.contiguous_head_dim(k), common.contiguous_head_dim(v), return_lse=True,
            **{name: value for name, value in cache.items() if value is not None}, **rotary,
            **options)


def attend_packed_with_kvcache(q, k_cache, v_cache, cu_seqlens_q, max_seqlen_q, *, cache_seqlens,
                               cache_batch_idx, block_table, options):
    """(out, lse) of packed queries (tq,h,d), whose keys the caches hold already. A cache without
    pages is read as one page for each sequence."""
    batch = cu_seqlens_q.shape[0] - 1
    lengths = _lengths(cache_seqlens, k_cache, block_table, batch, q.device)
    if block_table is None:
        rows = (torch.arange(batch, device=q.device) if cache_batch_idx is None
                else cache_batch_idx)
        block_table = rows.to(torch.int32)[:, None].contiguous()
    elif cache_batch_idx is not None:
        raise ValueError("cache_batch_idx with page_table: the table says which pages are whose")
    capacity = k_cache.shape[1] * block_table.shape[1]
    packed = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": int(max_seqlen_q or q.shape[0]),
              "max_seqlen_kv": capacity, "seqused_kv": lengths, "block_table": block_table}
    with torch.no_grad():
        return operations.attention(common.contiguous_head_dim(q), k_cache, v_cache,
                                    return_lse=True, **packed, **options)
