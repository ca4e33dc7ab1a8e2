"""heed.decode as an operator of PyTorch, torch.ops.heed.decode, with a fake implementation: it
writes to the caches, and torch.compile and CUDA graphs see that it does. No gradients."""

import torch

from heed import operations
from heed.calls import window_bounds

# Tensors beside q, the caches and their lengths, and numbers, in the order of the schema.
TENSORS = ("k_new", "v_new", "cache_batch_index", "cache_leftpad", "rotary_cos", "rotary_sin",
           "k_scales", "v_scales", "block_table", "alibi_slopes", "bias", "mask", "sinks")
NUMBERS = {
    "rotary_layout": ("str", "interleaved"), "num_splits": ("int", 0),
    "kv_format": ("str", "plain"), "kv_layout": ("str", "rows"), "head_dim_v": ("int?", None),
    "scale": ("float?", None),
    "softcap": ("float", 0.0), "causal": ("bool", False), "alignment": ("str", "bottom_right"),
    "window_left": ("int", -1), "window_right": ("int", -1), "deterministic": ("bool", False),
    "fixed_split": ("bool", False), "forbid_slower": ("bool", False), "backend": ("str", "auto"),
    "kernel": ("str?", None), "num_threads": ("int", 0),
}


def schema():
    options = [f"Tensor? {name}" for name in TENSORS]
    options += [f"{kind} {name}" for name, (kind, _) in NUMBERS.items()]
    return ("decode(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor cache_lengths, "
            f"{', '.join(options)}) -> (Tensor o, Tensor lse)")


def _named(values):
    options = {name: value for name, value in zip(TENSORS, values) if value is not None}
    options.update((name, value) for (name, (_, neutral)), value
                   in zip(NUMBERS.items(), values[len(TENSORS):]) if value != neutral)
    sides = options.pop("window_left", -1), options.pop("window_right", -1)
    if sides != (-1, -1):
        options["window"] = sides
    return options


def _decode_impl(q, k_cache, v_cache, cache_lengths, *values):
    return operations.run_decode(q, k_cache, v_cache, cache_lengths, return_lse=True,
                                 **_named(values))


def _decode_fake(q, k_cache, v_cache, cache_lengths, *values):
    options = _named(values)
    dim_v = operations.decode_dim_v(q, v_cache, options.get("v_new"),
                                    options.get("kv_format", "plain"), options.get("head_dim_v"))
    return (q.new_empty((*q.shape[:-1], dim_v)),
            q.new_empty(operations.lse_shape(q, False), dtype=torch.float32))


def define(library):
    library.define(schema())
    for key in ("CPU", "CUDA"):
        library.impl("decode", _decode_impl, key)
    torch.library.register_fake("heed::decode", _decode_fake, lib=library)


def run_operator(q, k_cache, v_cache, cache_lengths, return_lse, out, options):
    """torch.ops.heed.decode by the names of heed.decode's arguments."""
    options = dict(options)
    left, right = window_bounds(options.pop("window", (-1, -1)))
    tensors = [options.pop(name, None) for name in TENSORS]
    numbers = {name: options.pop(name, neutral) for name, (_, neutral) in NUMBERS.items()}
    operations.refuse_rest("decode", options)
    numbers.update(window_left=left, window_right=right)
    o, lse = torch.ops.heed.decode(q, k_cache, v_cache, cache_lengths, *tensors, *numbers.values())
    if out is not None:
        o = out.copy_(o)
    return (o, lse) if return_lse else o
