"""flash_attn.bert_padding: between padded batches and packed sequences. All differentiable."""

import torch
import torch.nn.functional as F


def index_first_axis(x, indices):
    """Rows of x (n, ...) at indices."""
    return x.index_select(0, indices)


def index_put_first_axis(x, indices, first_axis_dim):
    """An array of first_axis_dim rows, zero but for x's rows at indices."""
    return x.new_zeros(first_axis_dim, *x.shape[1:]).index_copy(0, indices, x)


def unpad_input(hidden_states, attention_mask, unused_mask=None):
    """hidden_states (batch, seqlen, ...), masks bool or int (batch, seqlen), 1 = valid; unused_mask
    marks tokens that are packed but not attended to.

    Returns the packed tokens (total, ...), their indices in the flattened batch, cu_seqlens int32
    (batch + 1), the longest length as int, and seqused int32 (batch)."""
    all_masks = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = all_masks.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(all_masks.flatten(), as_tuple=False).flatten()
    cu_seqlens = F.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    longest = int(lengths.max()) if lengths.numel() else 0
    packed = index_first_axis(hidden_states.flatten(0, 1), indices)
    return packed, indices, cu_seqlens, longest, used


def pad_input(hidden_states, indices, batch, seqlen):
    """The inverse of unpad_input: (batch, seqlen, ...), zero where nothing was packed."""
    padded = index_put_first_axis(hidden_states, indices, batch * seqlen)
    return padded.unflatten(0, (batch, seqlen))
