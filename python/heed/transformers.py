"""heed as an attention implementation of Hugging Face transformers.

    import heed.transformers
    heed.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="heed")
"""

import torch

import heed.torch


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None,
                      is_causal=None, softcap=None, position_bias=None, s_aux=None, **_):
    """transformers' attention interface: query [B,Hq,Sq,D], key and value [B,Hkv,Skv,D], read as
    the views they are; attention_mask boolean (True = attend) or additive, None where causal says
    it. Returns the output [B,Sq,Hq,Dv] and None in the place of weights, which are never stored."""
    options = {}
    if scaling is not None:
        options["scale"] = float(scaling)
    if softcap:
        options["softcap"] = float(softcap)
    if s_aux is not None:
        options["sinks"] = s_aux.float()
    if dropout:
        options["dropout_p"] = dropout
    if attention_mask is not None:
        attention_mask = attention_mask[..., :key.shape[-2]]
        options["mask" if attention_mask.dtype == torch.bool else "bias"] = attention_mask
    else:
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        options["causal"] = bool(is_causal) and query.shape[2] > 1
    if position_bias is not None:
        options["bias"] = options["bias"] + position_bias if "bias" in options else position_bias
    out = heed.torch.attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
                               **options)
    return out, None


def register(name="heed"):
    """Makes attn_implementation=name available, with boolean masks as sdpa gets them."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, sdpa_mask)
