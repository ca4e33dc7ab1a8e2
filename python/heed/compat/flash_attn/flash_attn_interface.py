"""flash_attn.flash_attn_interface: FlashAttention-2's functions, conventions and signatures. A row
without a visible key has an lse of +inf here, as there; heed's own functions give -inf."""

import torch

from heed.compat import common

USE_TRITON_ROCM = False


def _get_block_size_n(device, head_dim, is_dropout, is_causal):
    """Key blocks of S_dmask: all keys, because its rows are relative to one maximum."""
    return 1 << 30


def _to_flash_lse(lse):
    return torch.where(lse == float("-inf"), float("inf"), lse)


def _to_heed_lse(lse):
    return torch.where(lse == float("inf"), float("-inf"), lse)


def _dropout_options(dropout_p, device):
    if not dropout_p:
        return {}
    return {"dropout_p": dropout_p, "dropout_rng": common.draw_rng_state(device)}


def _run(q, k, v, dropout_p, return_attn_probs, options):
    options = {**options, **_dropout_options(dropout_p, q.device)}
    out, lse = common.attention(q, k, v, options)
    if not return_attn_probs:
        return out
    return out, _to_flash_lse(lse), _probabilities(q, k, lse, dropout_p, options)


def _probabilities(q, k, lse, dropout_p, options):
    """S_dmask: for debugging, made only with dropout."""
    with torch.no_grad():
        if not dropout_p:
            return torch.empty(0, dtype=q.dtype, device=q.device)
        if "cu_seqlens_q" in options:
            return common.packed_signed_probabilities(q, k, lse, options)
        return common.signed_probabilities(q, k, lse, options)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
                    softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """q (b,sq,h,d), k and v (b,sk,hk,d) -> out (b,sq,h,d); with return_attn_probs also softmax_lse
    (b,h,sq) and S_dmask."""
    options = common.score_options(softmax_scale=softmax_scale, causal=causal,
                                   window_size=window_size, softcap=softcap,
                                   alibi_slopes=alibi_slopes, deterministic=deterministic)
    return _run(q, k, v, dropout_p, return_attn_probs, options)


def flash_attn_qkvpacked_func(qkv, dropout_p=0.0, softmax_scale=None, causal=False,
                              window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                              deterministic=False, return_attn_probs=False):
    """qkv (b,s,3,h,d)."""
    return flash_attn_func(*qkv.unbind(2), dropout_p, softmax_scale, causal, window_size, softcap,
                           alibi_slopes, deterministic, return_attn_probs)


def flash_attn_kvpacked_func(q, kv, dropout_p=0.0, softmax_scale=None, causal=False,
                             window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                             deterministic=False, return_attn_probs=False):
    """q (b,sq,h,d), kv (b,sk,2,hk,d)."""
    return flash_attn_func(q, *kv.unbind(2), dropout_p, softmax_scale, causal, window_size, softcap,
                           alibi_slopes, deterministic, return_attn_probs)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                           dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
                           softcap=0.0, alibi_slopes=None, deterministic=False,
                           return_attn_probs=False, block_table=None):
    """q (tq,h,d), k and v (tk,hk,d) or pools (pages,slots,hk,d) with block_table (b,most)."""
    options = common.score_options(softmax_scale=softmax_scale, causal=causal,
                                   window_size=window_size, softcap=softcap,
                                   alibi_slopes=alibi_slopes, deterministic=deterministic)
    options.update(common.varlen_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                                         block_table))
    return _run(q, k, v, dropout_p, return_attn_probs, options)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None,
                                     causal=False, window_size=(-1, -1), softcap=0.0,
                                     alibi_slopes=None, deterministic=False,
                                     return_attn_probs=False):
    """qkv (t,3,h,d)."""
    return flash_attn_varlen_func(*qkv.unbind(1), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen,
                                  dropout_p, softmax_scale, causal, window_size, softcap,
                                  alibi_slopes, deterministic, return_attn_probs)


def flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                                    dropout_p=0.0, softmax_scale=None, causal=False,
                                    window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                                    deterministic=False, return_attn_probs=False):
    """q (tq,h,d), kv (tk,2,hk,d)."""
    return flash_attn_varlen_func(q, *kv.unbind(1), cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                  max_seqlen_k, dropout_p, softmax_scale, causal, window_size,
                                  softcap, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None,
                            cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None,
                            block_table=None, softmax_scale=None, causal=False,
                            window_size=(-1, -1), softcap=0.0, rotary_interleaved=True,
                            alibi_slopes=None, num_splits=0, return_softmax_lse=False):
    """Attention of q (b,sq,h,d) to caches (b_cache,s_cache,hk,d) or pools with block_table, after k
    and v (b,snew,hk,d) were appended in place, rotated like q where rotary_cos is given."""
    from heed.compat.kvcache import attend_with_kvcache
    options = common.score_options(softmax_scale=softmax_scale, causal=causal,
                                   window_size=window_size, softcap=softcap,
                                   alibi_slopes=alibi_slopes)
    out, lse = attend_with_kvcache(
        q, k_cache, v_cache, k, v, rotary_cos=rotary_cos, rotary_sin=rotary_sin,
        rotary_interleaved=rotary_interleaved, cache_seqlens=cache_seqlens,
        cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad, block_table=block_table,
        num_splits=num_splits, options=options)
    return (out, _to_flash_lse(lse)) if return_softmax_lse else out


def _flash_attn_forward(q, k, v, dropout_p, softmax_scale, causal, window_size_left,
                        window_size_right, softcap, alibi_slopes, return_softmax):
    """(out, softmax_lse, S_dmask, rng_state), without gradients."""
    options = common.score_options(softmax_scale=softmax_scale, causal=causal,
                                   window_size=(window_size_left, window_size_right),
                                   softcap=softcap, alibi_slopes=alibi_slopes)
    options.update(_dropout_options(dropout_p, q.device))
    with torch.no_grad():
        out, lse = common.attention(q, k, v, options)
    probabilities = _probabilities(q, k, lse, dropout_p, options) if return_softmax else None
    return out, _to_flash_lse(lse), probabilities, _rng_state(options, q.device)


def _rng_state(options, device):
    rng_state = options.get("dropout_rng")
    return torch.zeros(2, dtype=torch.int64, device=device) if rng_state is None else rng_state


def _flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                               dropout_p, softmax_scale, causal, window_size_left=-1,
                               window_size_right=-1, softcap=0.0, alibi_slopes=None,
                               return_softmax=False, block_table=None, leftpad_k=None,
                               seqused_k=None, zero_tensors=False, num_splits=0):
    if leftpad_k is not None:
        raise NotImplementedError("leftpad_k: pack the keys without padding instead")
    if block_table is not None and num_splits > 1:
        raise ValueError("num_splits > 1 is not supported with block_table")
    options = common.score_options(softmax_scale=softmax_scale, causal=causal,
                                   window_size=(window_size_left, window_size_right),
                                   softcap=softcap, alibi_slopes=alibi_slopes)
    options.update(common.varlen_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                                         block_table, seqused_k=seqused_k))
    options.update(_dropout_options(dropout_p, q.device))
    with torch.no_grad():
        out, lse = common.attention(q, k, v, options)
    probabilities = _probabilities(q, k, lse, dropout_p, options) if return_softmax else None
    return out, _to_flash_lse(lse), probabilities, _rng_state(options, q.device)


def _backward_options(dropout_p, rng_state, **rule):
    options = common.score_options(**rule)
    if dropout_p:
        if rng_state is None:
            raise ValueError("rng_state = None: must be the one that the forward call returned")
        options.update(dropout_p=dropout_p, dropout_rng=rng_state)
    return options


def _flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale,
                         causal, window_size_left, window_size_right, softcap, alibi_slopes,
                         deterministic, rng_state=None):
    """Writes dq, dk, dv; returns softmax_d."""
    options = _backward_options(dropout_p, rng_state, softmax_scale=softmax_scale, causal=causal,
                                window_size=(window_size_left, window_size_right), softcap=softcap,
                                alibi_slopes=alibi_slopes, deterministic=deterministic)
    return common.backward_into(dout, q, k, v, out, _to_heed_lse(softmax_lse), dq, dk, dv, options)


def _flash_attn_varlen_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q,
                                cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale,
                                causal, window_size_left, window_size_right, softcap, alibi_slopes,
                                deterministic, rng_state=None, zero_tensors=False):
    options = _backward_options(dropout_p, rng_state, softmax_scale=softmax_scale, causal=causal,
                                window_size=(window_size_left, window_size_right), softcap=softcap,
                                alibi_slopes=alibi_slopes, deterministic=deterministic)
    options.update(common.varlen_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k))
    return common.backward_into(dout, q, k, v, out, _to_heed_lse(softmax_lse), dq, dk, dv, options)
