"""Attention in plain torch, twice, for the tolerance rule of FlashAttention's own tests: an error
against the float32 result may be at most a multiple of what torch in low precision makes."""

import torch


def attention(q, k, v, *, causal=False, window=(-1, -1), softcap=0.0, alibi_slopes=None, keep=None,
              dropout_p=0.0, upcast=True, scales_k=False):
    """q [b,sq,h,d]. upcast: compute in float32. scales_k: another order of operations."""
    dtype = q.dtype
    if upcast:
        q, k, v = q.float(), k.float(), v.float()
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scale = q.shape[-1] ** -0.5
    if scales_k:
        s = torch.einsum("bihd,bjhd->bhij", q, k * scale)
    else:
        s = torch.einsum("bihd,bjhd->bhij", q * scale, k)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    q_len, kv_len = s.shape[-2:]
    ahead = (torch.arange(kv_len, device=q.device)[None] - (kv_len - q_len) -
             torch.arange(q_len, device=q.device)[:, None])
    if alibi_slopes is not None:
        s = s - alibi_slopes[None, :, None, None].to(s.dtype) * ahead.abs()
    left, right = window
    right = 0 if causal else right
    hidden = torch.zeros_like(ahead, dtype=torch.bool)
    if left >= 0:
        hidden |= ahead < -left
    if right >= 0:
        hidden |= ahead > right
    s = s.masked_fill(hidden, float("-inf"))
    p = torch.softmax(s, dim=-1).masked_fill(hidden.all(-1)[:, None], 0.0).to(v.dtype)
    if keep is not None:
        p = p * keep / (1 - dropout_p)
    return torch.einsum("bhij,bjhd->bihd", p, v).to(dtype)


def check(actual, reference, low_precision, multiple=2, absolute=1e-5):
    """actual's error against reference, in multiples of torch's own."""
    allowed = multiple * (low_precision - reference).abs().max().item() + absolute
    error = (actual.float() - reference.float()).abs().max().item()
    assert error <= allowed, f"error {error}, allowed {allowed}"
