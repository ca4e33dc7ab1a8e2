"""flash_attn.layers.rotary: rotary position embedding in plain torch."""

import torch


def _rotate(x, cos, sin, interleaved):
    if interleaved:
        first, second = x[..., ::2], x[..., 1::2]
    else:
        first, second = x.chunk(2, dim=-1)
    rotated = first * cos - second * sin, first * sin + second * cos
    if interleaved:
        return torch.stack(rotated, dim=-1).flatten(-2)
    return torch.cat(rotated, dim=-1)


def _positions(x, seqlen_offsets, cu_seqlens):
    """Position of every token: [batch, seqlen], or [total] of packed sequences."""
    offsets = torch.as_tensor(seqlen_offsets, device=x.device)
    if cu_seqlens is None:
        offsets = offsets.expand(x.shape[0]) if offsets.dim() == 0 else offsets
        return torch.arange(x.shape[1], device=x.device)[None] + offsets[:, None]
    token = torch.arange(x.shape[0], device=x.device)
    sequence = torch.bucketize(token, cu_seqlens[1:].to(token.dtype), right=True)
    start = cu_seqlens.to(token.dtype)[sequence]
    return token - start + (offsets if offsets.dim() == 0 else offsets[sequence])


def apply_rotary_emb(x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0,
                     cu_seqlens=None, max_seqlen=None):
    """x (batch, seqlen, heads, dim), or (total, heads, dim) with cu_seqlens; cos and sin
    (positions, rotary_dim / 2). The first rotary_dim columns are rotated, the others stay."""
    rotary_dim = 2 * cos.shape[-1]
    if rotary_dim > x.shape[-1]:
        raise ValueError(f"cos.shape[-1] = {cos.shape[-1]}: must be at most half of "
                         f"x.shape[-1] = {x.shape[-1]}")
    positions = _positions(x, seqlen_offsets, cu_seqlens)
    columns = x[..., :rotary_dim].float()
    rotated = _rotate(columns, cos[positions].float().unsqueeze(-2),
                      sin[positions].float().unsqueeze(-2), interleaved).to(x.dtype)
    if inplace:
        x[..., :rotary_dim] = rotated
        return x
    return torch.cat([rotated, x[..., rotary_dim:]], dim=-1)


apply_rotary_emb_func = apply_rotary_emb
