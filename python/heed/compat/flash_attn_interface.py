"""flash_attn_interface: FlashAttention-3's functions. A row without a visible key has an lse of
-inf here, as there."""

import torch

from heed import operations
from heed.compat import common


_REASONS = {
    "qv": "a cache of v cannot serve as keys too; keep [k, v] along the head dim as the k cache",
    "q_descale": "heed takes no fp8 queries; heed.decode takes fp8 caches with their scales",
    "k_descale": "heed takes no fp8 keys here; heed.decode takes fp8 caches with their scales",
    "v_descale": "heed takes no fp8 values here; heed.decode takes fp8 caches with their scales",
    "attention_chunk": "heed has no chunked rule; pass heed.attention a boolean mask",
    "cu_seqlens_k_new": "heed appends as many keys to every sequence; append a ragged step "
                        "yourself, then pass cache_seqlens",
    "rotary_seqlens": "heed rotates at cache_seqlens",
}


def _refuse(**features):
    for name, value in features.items():
        if isinstance(value, torch.Tensor) or value not in (None, False, 0):
            raise NotImplementedError(f"{name}: {_REASONS[name]}")


def _absorb_qv(q, k, v, qv, softmax_scale):
    """(q, k, softmax_scale) whose scores are those of q k + qv v."""
    if qv is None:
        return q, k, softmax_scale
    q, k = torch.cat([q, qv], dim=-1), torch.cat([k, v], dim=-1)
    return q, k, q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale


def _run(q, k, v, return_attn_probs, options):
    out, lse = common.attention(q, k, v, options)
    return (out, lse) if return_attn_probs else out


def flash_attn_func(q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None,
                    k_descale=None, v_descale=None, window_size=(-1, -1), attention_chunk=0,
                    softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0,
                    return_attn_probs=False):
    """q (b,sq,h,d), k (b,sk,hk,d), v (b,sk,hk,dv) -> out (b,sq,h,dv), with return_attn_probs also
    softmax_lse (b,h,sq). num_splits, pack_gqa and sm_margin are heed's own choice."""
    _refuse(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
            attention_chunk=attention_chunk)
    q, k, softmax_scale = _absorb_qv(q, k, v, qv, softmax_scale)
    options = common.score_options(softmax_scale=softmax_scale, causal=causal,
                                   window_size=window_size, softcap=softcap,
                                   deterministic=deterministic)
    return _run(q, k, v, return_attn_probs, options)


def flash_attn_qkvpacked_func(qkv, softmax_scale=None, causal=False, q_descale=None, k_descale=None,
                              v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0,
                              deterministic=False, num_heads_q=None, sm_margin=0,
                              return_attn_probs=False):
    """qkv (b,s,3,h,d), or (b,s,h+2hk,d) with num_heads_q = h."""
    if qkv.dim() == 5:
        q, k, v = qkv.unbind(2)
    else:
        if num_heads_q is None:
            raise ValueError("num_heads_q = None: must be given for qkv of 4 axes")
        kv_heads = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split([num_heads_q, kv_heads, kv_heads], dim=2)
    return flash_attn_func(q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale,
                           window_size, attention_chunk, softcap, deterministic=deterministic,
                           return_attn_probs=return_attn_probs)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                           seqused_q=None, seqused_k=None, softmax_scale=None, causal=False,
                           qv=None, q_descale=None, k_descale=None, v_descale=None,
                           window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1,
                           pack_gqa=None, deterministic=False, sm_margin=0,
                           return_attn_probs=False):
    """q (tq,h,d), k and v (tk,hk,d)."""
    _refuse(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
            attention_chunk=attention_chunk)
    q, k, softmax_scale = _absorb_qv(q, k, v, qv, softmax_scale)
    options = common.score_options(softmax_scale=softmax_scale, causal=causal,
                                   window_size=window_size, softcap=softcap,
                                   deterministic=deterministic)
    options.update(common.varlen_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                                         seqused_q=seqused_q, seqused_k=seqused_k))
    return _run(q, k, v, return_attn_probs, options)


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    """out_partial float32 (splits,b,s,h,d), lse_partial float32 (splits,b,s,h) -> out (b,s,h,d) and
    its lse (b,h,s)."""
    dtype = out.dtype if out is not None else out_dtype or torch.float32
    return operations.combine(out_partial, lse_partial.movedim(-1, -2).contiguous(), out=out,
                              dtype=str(dtype)[6:])


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None,
                            rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
                            cache_leftpad=None, page_table=None, cu_seqlens_q=None,
                            cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None,
                            q_descale=None, k_descale=None, v_descale=None, softmax_scale=None,
                            causal=False, window_size=(-1, -1), attention_chunk=0, softcap=0.0,
                            rotary_interleaved=True, scheduler_metadata=None, num_splits=0,
                            pack_gqa=None, sm_margin=0, return_softmax_lse=False):
    """As FlashAttention-2's, with page_table; q may be packed (tq,h,d) with cu_seqlens_q. The lse
    is followed by two None, in the places of partial results."""
    from heed.compat.kvcache import attend_packed_with_kvcache, attend_with_kvcache
    _refuse(qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
            attention_chunk=attention_chunk, cu_seqlens_k_new=cu_seqlens_k_new,
            rotary_seqlens=rotary_seqlens)
    options = common.score_options(softmax_scale=softmax_scale, causal=causal,
                                   window_size=window_size, softcap=softcap)
    if cu_seqlens_q is not None:
        if k is not None or cache_leftpad is not None:
            raise NotImplementedError("cu_seqlens_q with k or cache_leftpad: heed appends as many "
                                      "keys to every sequence; append them yourself, then pass "
                                      "cache_seqlens")
        out, lse = attend_packed_with_kvcache(
            q, k_cache, v_cache, cu_seqlens_q, max_seqlen_q, cache_seqlens=cache_seqlens,
            cache_batch_idx=cache_batch_idx, block_table=page_table, options=options)
    else:
        out, lse = attend_with_kvcache(
            q, k_cache, v_cache, k, v, rotary_cos=rotary_cos, rotary_sin=rotary_sin,
            rotary_interleaved=rotary_interleaved, cache_seqlens=cache_seqlens,
            cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad, block_table=page_table,
            num_splits=num_splits, options=options)
    return (out, lse, None, None) if return_softmax_lse else out


def get_scheduler_metadata(*arguments, **options):
    """None: heed plans each call by itself."""
    return None
