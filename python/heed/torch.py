"""heed for PyTorch: operators torch.ops.heed.forward, backward and decode with fake and autograd
implementations, and `attention` and `decode` on top of them. Works eagerly, under torch.compile
(fullgraph), in CUDA graphs, with autocast and gradcheck, for CPU and CUDA tensors.
"""

import torch
from torch.autograd import forward_ad

from heed import operations, torch_decode, torch_transforms
from heed.calls import window_bounds
from heed.prepared import find, kind_of, run
from heed.prepared import forward as run_forward

# Tensors beside q, k and v, and numbers, in the order of the operators' schemas.
TENSORS = ("alibi_slopes", "bias", "mask", "sinks", "dropout_rng", "cu_seqlens_q", "cu_seqlens_kv",
           "seqused_q", "seqused_kv", "block_table")
NUMBERS = {
    "scale": ("float?", None), "softcap": ("float", 0.0), "causal": ("bool", False),
    "alignment": ("str", "bottom_right"), "window_left": ("int", -1), "window_right": ("int", -1),
    "dropout_p": ("float", 0.0), "dropout_seed": ("int", 0), "dropout_offset": ("int", 0),
    "max_seqlen_q": ("int", 0), "max_seqlen_kv": ("int", 0), "deterministic": ("bool", False),
    "fixed_split": ("bool", False), "forbid_slower": ("bool", False), "backend": ("str", "auto"),
    "kernel": ("str?", None), "num_threads": ("int", 0),
}
_OPTIONS = ", ".join([f"Tensor? {name}" for name in TENSORS] +
                     [f"{kind} {name}" for name, (kind, _) in NUMBERS.items()])
_BIAS, _SINKS = TENSORS.index("bias"), TENSORS.index("sinks")

_library = torch.library.Library("heed", "DEF")
_library.define(f"forward(Tensor q, Tensor k, Tensor v, {_OPTIONS}) -> (Tensor o, Tensor lse)")
_library.define("backward(Tensor d_o, Tensor? d_lse, Tensor q, Tensor k, Tensor v, Tensor o, "
                f"Tensor lse, bool wants_d_bias, bool wants_d_sinks, {_OPTIONS}) -> "
                "(Tensor dq, Tensor dk, Tensor dv, Tensor d_bias, Tensor d_sinks)")


def _options(values):
    """Options of attention, those that are not neutral, from the operators' positional ones."""
    options = {name: value for name, value in zip(TENSORS, values) if value is not None}
    for (name, (_, neutral)), value in zip(NUMBERS.items(), values[len(TENSORS):]):
        if value != neutral:
            options[name] = value
    sides = options.pop("window_left", -1), options.pop("window_right", -1)
    if sides != (-1, -1):
        options["window"] = sides
    return options


def _lse_dtype(q):
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _forward_impl(q, k, v, *options):
    return run_forward(q, k, v, _options(options))


def _forward_fake(q, k, v, *options):
    is_packed = options[TENSORS.index("cu_seqlens_q")] is not None
    return (q.new_empty((*q.shape[:-1], v.shape[-1])),
            q.new_empty(operations.lse_shape(q, is_packed), dtype=_lse_dtype(q)))


def _readable(d_o):
    """Gradients arrive expanded, or transposed so that the head dim is not contiguous."""
    return d_o if d_o.stride(-1) == 1 and 0 not in d_o.stride() else d_o.contiguous()


def _backward_impl(d_o, d_lse, q, k, v, o, lse, wants_d_bias, wants_d_sinks, *options):
    gradients = operations.attention_backward(
        _readable(d_o), q, k, v, o, lse, d_lse=None if d_lse is None else d_lse.contiguous(),
        wants_d_bias=wants_d_bias, wants_d_sinks=wants_d_sinks, **_options(options))
    absent = q.new_empty(0)
    return (gradients["dq"], gradients["dk"], gradients["dv"], gradients.get("d_bias", absent),
            gradients.get("d_sinks", absent))


def _backward_fake(d_o, d_lse, q, k, v, o, lse, wants_d_bias, wants_d_sinks, *options):
    def like(tensor):
        return tensor.new_empty(tensor.shape)

    return (like(q), like(k), like(v), like(options[_BIAS]) if wants_d_bias else q.new_empty(0),
            like(options[_SINKS]) if wants_d_sinks else q.new_empty(0))


def _save(ctx, inputs, output):
    q, k, v, *options = inputs
    o, lse = output
    ctx.save_for_backward(q, k, v, o, lse, *options[:len(TENSORS)])
    ctx.numbers = options[len(TENSORS):]
    ctx.set_materialize_grads(False)


def _differentiate(ctx, d_o, d_lse):
    q, k, v, o, lse, *tensors = ctx.saved_tensors
    wants_d_bias = ctx.needs_input_grad[3 + _BIAS]
    wants_d_sinks = ctx.needs_input_grad[3 + _SINKS]
    if d_o is None:
        d_o = torch.zeros_like(o)
    dq, dk, dv, d_bias, d_sinks = torch.ops.heed.backward(
        d_o, d_lse, q, k, v, o, lse, wants_d_bias, wants_d_sinks, *tensors, *ctx.numbers)
    gradients = [None] * len(TENSORS)
    if wants_d_bias:
        gradients[_BIAS] = d_bias
    if wants_d_sinks:
        gradients[_SINKS] = d_sinks
    return (dq, dk, dv, *gradients, *[None] * len(NUMBERS))


def _refuse_second_derivatives(ctx, *_):
    raise NotImplementedError("heed.attention: second derivatives are not available")


for _key in ("CPU", "CUDA"):
    _library.impl("forward", _forward_impl, _key)
    _library.impl("backward", _backward_impl, _key)
torch_decode.define(_library)
torch.library.register_fake("heed::forward", _forward_fake, lib=_library)
torch.library.register_fake("heed::backward", _backward_fake, lib=_library)
torch.library.register_autograd("heed::backward", _refuse_second_derivatives, lib=_library)
torch.library.register_autograd("heed::forward", _differentiate, setup_context=_save, lib=_library)


def _cast_for_autocast(q, k, v):
    kind = q.device.type
    if torch.is_autocast_enabled(kind) and q.dtype == torch.float32:
        dtype = torch.get_autocast_dtype(kind)
        return q.to(dtype), k.to(dtype), v.to(dtype)
    return q, k, v


class _Attention(torch.autograd.Function):
    """Eager calls with gradients, past the dispatcher."""

    @staticmethod
    def forward(ctx, q, k, v, bias, sinks, options):
        options = dict(options)
        for name, tensor in (("bias", bias), ("sinks", sinks)):
            if tensor is not None:
                options[name] = tensor
        o, lse = run_forward(q, k, v, options)
        # All tensors, so that torch notices one that is changed before the backward pass.
        ctx.names = [name for name, value in options.items() if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(q, k, v, o, lse, *(options.pop(name) for name in ctx.names))
        ctx.options = options
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_o, d_lse):
        q, k, v, o, lse, *tensors = ctx.saved_tensors
        d_o = torch.zeros_like(o) if d_o is None else _readable(d_o)
        gradients = operations.attention_backward(
            d_o, q, k, v, o, lse, d_lse=None if d_lse is None else d_lse.contiguous(),
            wants_d_bias=ctx.needs_input_grad[3], wants_d_sinks=ctx.needs_input_grad[4],
            **ctx.options, **dict(zip(ctx.names, tensors)))
        return (gradients["dq"], gradients["dk"], gradients["dv"], gradients.get("d_bias"),
                gradients.get("d_sinks"), None)


def _is_observed():
    """Whether tracing, functorch, forward mode or a dispatch mode has to see the operator."""
    return (_is_compiling() or _num_dispatch_modes() or _functorch_interpreter() is not None or
            forward_ad._current_level >= 0)


_is_compiling = torch.compiler.is_compiling
_num_dispatch_modes = torch._C._len_torch_dispatch_stack
_functorch_interpreter = torch._C._functorch.peek_interpreter_stack
_is_autocast_enabled = torch._C._is_any_autocast_enabled
_is_grad_enabled = torch.is_grad_enabled
_Tensor = torch.Tensor
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _are_plain(q, k, v, options):
    if not (type(q) in _PLAIN and type(k) in _PLAIN and type(v) in _PLAIN):
        return False
    for value in options.values():
        if isinstance(value, torch.Tensor) and type(value) not in _PLAIN:
            return False
    return True


def _requires_grad(tensor):
    return tensor is not None and tensor.requires_grad


def _run_operator(q, k, v, options):
    options = dict(options)
    left, right = window_bounds(options.pop("window", (-1, -1)))
    tensors = [options.pop(name, None) for name in TENSORS]
    numbers = {name: options.pop(name, neutral) for name, (_, neutral) in NUMBERS.items()}
    operations.refuse_rest("attention", options)
    numbers.update(window_left=left, window_right=right)
    if not _is_compiling():
        torch_transforms.refuse_forward_mode((q, k, v, *tensors))
        if _functorch_interpreter() is not None:
            return torch_transforms.Attention.apply(tuple(numbers.values()), q, k, v, *tensors)
    return torch.ops.heed.forward(q, k, v, *tensors, *numbers.values())


def _run(q, k, v, options, wants_lse):
    if _is_observed() or not _are_plain(q, k, v, options):
        return _run_operator(q, k, v, options)
    if torch.is_grad_enabled():
        bias, sinks = options.get("bias"), options.get("sinks")
        if q.requires_grad or k.requires_grad or v.requires_grad or _requires_grad(bias) or (
                _requires_grad(sinks)):
            options = {name: value for name, value in options.items()
                       if name not in ("bias", "sinks")}
            return _Attention.apply(q, k, v, bias, sinks, options)
    return run_forward(q, k, v, options, wants_lse)


def _records_gradients(q, k, v, options):
    if q.requires_grad or k.requires_grad or v.requires_grad:
        return True
    for value in options.values():
        if isinstance(value, _Tensor) and value.requires_grad:
            return True
    return False


def attention(q, k, v, *, return_lse=False, out=None, **options):
    """heed.attention for torch tensors: same shapes and options, differentiable in q, k, v, bias,
    sinks and through lse. With dropout_p and neither dropout_seed nor dropout_rng the seed comes
    from torch's generator of q's device. out: only without gradients."""
    # Plain tensors that no gradient, tracing or autocast concerns: if a call of this kind has been
    # made before, what is below has been checked then.
    if (out is None and type(q) is type(k) is type(v) is _Tensor and not _is_observed() and
            not _is_autocast_enabled() and
            not (_is_grad_enabled() and _records_gradients(q, k, v, options))):
        call = find(kind_of(q, k, v, options, return_lse))
        if call is not None:
            o, lse = run(call, q, k, v, options)
            return (o, lse) if return_lse else o
    if _is_autocast_enabled():
        q, k, v = _cast_for_autocast(q, k, v)
    if options:
        if options.get("dropout_p") and "dropout_seed" not in options and (
                "dropout_rng" not in options):
            options["dropout_rng"] = torch.randint(0, 2**62, (2,), device=q.device,
                                                   dtype=torch.int64)
        if "window" in options:
            options["window"] = window_bounds(options["window"])
    for name, value in (("k", k), ("v", v), *((name, options.get(name)) for name in TENSORS
                                              if name in options)):
        if value is not None and not isinstance(value, torch.Tensor):
            raise TypeError(f"{name}: an argument of type {type(value).__module__}."
                            f"{type(value).__qualname__}: must be a torch tensor, as q is")
    bias = options.get("bias")
    if _requires_grad(bias) and 0 in bias.stride():
        options["bias"] = bias.contiguous()  # its gradient has no axes that repeat
    if out is not None:
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v, out)):
            raise ValueError("out: not while gradients are recorded")
        return operations.run_attention(q, k, v, return_lse=return_lse, out=out, **options)
    o, lse = _run(q, k, v, options, return_lse)
    return (o, lse) if return_lse else o


def decode(q, k_cache, v_cache, cache_lengths, k_new=None, v_new=None, *, return_lse=False,
           out=None, **options):
    """heed.decode for torch tensors: same shapes and options. No gradients."""
    arrays = {"k_new": k_new, "v_new": v_new}
    if not _is_observed():
        return operations.run_decode(q, k_cache, v_cache, cache_lengths, **arrays, out=out,
                                     return_lse=return_lse, **options)
    operations.refuse_gradients("decode", q, k_new, v_new)
    return torch_decode.run_operator(q, k_cache, v_cache, cache_lengths, return_lse, out,
                                     {**arrays, **options})


operations.use_torch(torch.Tensor, attention)
