"""What the FlashAttention-2 and FlashAttention-3 functions share."""

import torch

import heed.torch
from heed import operations


def score_options(*, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                  alibi_slopes=None, deterministic=False):
    """Options of heed.attention from FlashAttention's. window_size may hold 0-dim tensors."""
    options = {}
    if softmax_scale is not None:
        options["scale"] = float(softmax_scale)
    # There every negative number means no bound.
    left, right = (-1 if side is None else max(-1, int(side)) for side in window_size)
    if causal:
        options["causal"] = True
        right = -1
    if left >= 0 or right >= 0:
        options["window"] = (left, right)
    if softcap:
        options["softcap"] = float(softcap)
    if alibi_slopes is not None:
        options["alibi_slopes"] = alibi_slopes
    if deterministic:
        options["deterministic"] = True
    return options


def varlen_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table=None,
                   seqused_q=None, seqused_k=None):
    options = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": int(max_seqlen_q),
               "max_seqlen_kv": int(max_seqlen_k)}
    if block_table is not None:
        # Lengths of paged sequences come as counts, not as offsets.
        options["block_table"] = block_table
        if seqused_k is None:
            seqused_k = cu_seqlens_k[1:] - cu_seqlens_k[:-1]
    else:
        options["cu_seqlens_kv"] = cu_seqlens_k
    if seqused_q is not None:
        options["seqused_q"] = seqused_q
    if seqused_k is not None:
        options["seqused_kv"] = seqused_k
    return options


def draw_rng_state(device):
    """Seed and offset of a dropout mask, from torch's generator: int64 [2] on the device."""
    return torch.randint(0, 2**62, (2,), device=device, dtype=torch.int64)


def contiguous_head_dim(tensor):
    return tensor if tensor is None or tensor.stride(-1) == 1 else tensor.contiguous()


def attention(q, k, v, options):
    """(o, lse), lse with -inf for rows without a visible key."""
    q, k, v = map(contiguous_head_dim, (q, k, v))
    return heed.torch.attention(q, k, v, return_lse=True, **options)


def backward_into(dout, q, k, v, out, lse, dq, dk, dv, options):
    """Gradients written into dq, dk, dv, which may be strided views; those that are None are
    allocated. Returns softmax_d, the row sums of dout * out, as float32 [B,Hq,Sq] or [Hq,total]."""
    dout, q, k, v, out = map(contiguous_head_dim, (dout, q, k, v, out))
    gradients = operations.attention_backward(dout, q, k, v, out, lse.contiguous(), **options)
    for target, name in ((dq, "dq"), (dk, "dk"), (dv, "dv")):
        if target is not None:
            target.copy_(gradients[name])
    softmax_d = (dout.float() * out.float()).sum(-1)
    return softmax_d.movedim(-1, -2).contiguous()


def _probabilities(q, k, lse, options):
    """exp(score - lse) [B,Hq,Sq,Skv] of dense tensors, in float32."""
    rule = {name: options.get(name) for name in ("scale", "causal", "window", "softcap",
                                                 "alibi_slopes")}
    group = q.shape[2] // k.shape[2]
    keys = k.repeat_interleave(group, dim=2).float()
    s = torch.einsum("bihd,bjhd->bhij", q.float(), keys)
    s *= q.shape[-1] ** -0.5 if rule["scale"] is None else rule["scale"]
    if rule["softcap"]:
        s = rule["softcap"] * torch.tanh(s / rule["softcap"])
    q_len, kv_len = s.shape[-2:]
    row = torch.arange(q_len, device=q.device)[:, None] + (kv_len - q_len)
    ahead = torch.arange(kv_len, device=q.device)[None] - row
    if rule["alibi_slopes"] is not None:
        slopes = rule["alibi_slopes"].expand(s.shape[0], -1)
        s = s - slopes[:, :, None, None] * ahead.abs()
    left, right = rule["window"] or (-1, -1)
    right = 0 if rule["causal"] else right
    if left >= 0:
        s = s.masked_fill(ahead < -left, float("-inf"))
    if right >= 0:
        s = s.masked_fill(ahead > right, float("-inf"))
    return torch.exp(s - torch.where(lse.isinf(), 0.0, lse)[..., None])


def _kept(shape, options, device):
    seed, offset = options["dropout_rng"].tolist()
    kept = operations.dropout_mask(shape, options["dropout_p"], seed=seed, offset=offset)
    return torch.from_numpy(kept).to(device) != 0


def signed_probabilities(q, k, lse, options):
    """FlashAttention's S_dmask: exp(score - lse) in q's dtype, negative where dropout dropped.
    For debugging: holds all scores of a dense call."""
    p = _probabilities(q, k, lse, options)
    return torch.where(_kept(tuple(p.shape), options, q.device), p, -p).to(q.dtype)


def packed_signed_probabilities(q, k, lse, options):
    """The same of packed sequences: [B,Hq,most queries,most keys], zero outside the sequences."""
    if "block_table" in options:
        raise NotImplementedError("return_attn_probs with dropout_p and block_table: S_dmask is "
                                  "made of keys in one piece; use heed.dropout_mask")
    offsets_q, offsets_k = (options[name].tolist() for name in ("cu_seqlens_q", "cu_seqlens_kv"))
    batch, slopes = len(offsets_q) - 1, options.get("alibi_slopes")
    kept = _kept((batch, q.shape[1], options["max_seqlen_q"], options["max_seqlen_kv"]), options,
                 q.device)
    result = q.new_zeros(kept.shape)
    for b in range(batch):
        rows, keys = (slice(offsets[b], offsets[b + 1]) for offsets in (offsets_q, offsets_k))
        of_one = {**options, "alibi_slopes": slopes[b] if slopes is not None and slopes.dim() == 2
                  else slopes}
        p = _probabilities(q[None, rows], k[None, keys], lse[None, :, rows], of_one)[0]
        height, width = p.shape[1:]
        result[b, :, :height, :width] = torch.where(kept[b, :, :height, :width], p, -p)
    return result
