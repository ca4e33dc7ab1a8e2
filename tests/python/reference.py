"""Attention in float64, written down as the contract says it, for small arrays."""

import numpy as np


def scores(q, k, *, scale=None, softcap=0.0, causal=False, alignment="bottom_right",
           window=(-1, -1), alibi_slopes=None, bias=None, mask=None):
    """[B,Hq,Sq,Skv], -inf where hidden."""
    q, k = q.astype(np.float64), k.astype(np.float64)
    group = q.shape[2] // k.shape[2]
    s = np.einsum("bihd,bjhd->bhij", q, np.repeat(k, group, axis=2))
    s *= q.shape[-1] ** -0.5 if scale is None else scale
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if bias is not None:
        s = s + bias.astype(np.float64)
    q_len, kv_len = s.shape[-2:]
    shift = kv_len - q_len if alignment == "bottom_right" else 0
    ahead = np.arange(kv_len)[None, :] - (np.arange(q_len)[:, None] + shift)
    if alibi_slopes is not None:
        slopes = np.broadcast_to(alibi_slopes, (s.shape[0], s.shape[1])).astype(np.float64)
        s = s - slopes[:, :, None, None] * abs(ahead)
    left, right = window
    is_visible = np.ones((q_len, kv_len), bool)
    if causal:
        is_visible &= ahead <= 0
    if left >= 0:
        is_visible &= ahead >= -left
    if right >= 0:
        is_visible &= ahead <= right
    is_visible = np.broadcast_to(is_visible, s.shape)
    if mask is not None:
        is_visible = is_visible & (np.broadcast_to(mask, s.shape) != 0)
    return np.where(is_visible, s, -np.inf)


def attention(q, k, v, *, sinks=None, dropout_p=0.0, keep=None, **rule):
    """(o, lse). keep: the dropout mask [B,Hq,Sq,Skv]."""
    s = scores(q, k, **rule)
    logits = s
    if sinks is not None:
        column = np.broadcast_to(sinks.astype(np.float64)[None, :, None, None], s.shape[:3] + (1,))
        logits = np.concatenate([s, column], axis=-1)
    highest = logits.max(axis=-1, keepdims=True, initial=-np.inf)
    finite = np.where(np.isfinite(highest), highest, 0.0)
    total = np.exp(logits - finite).sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(total > 0, np.exp(s - finite) / total, 0.0)
        lse = (finite + np.log(total))[..., 0]
    if keep is not None:
        p = p * keep / (1.0 - round(dropout_p * 65536) / 65536)
    group = q.shape[2] // k.shape[2]
    return np.einsum("bhij,bjhd->bihd", p, np.repeat(v.astype(np.float64), group, axis=2)), lse
