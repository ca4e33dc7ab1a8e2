"""The operations of heed on plain arrays, without gradients. Shapes and the meaning of every option
are those of heed.h: B batch, Hq and Hkv query and key-value heads, Sq and Skv lengths, D and Dv
head dims of k and v."""

import ctypes as c

from heed import abi
from heed.calls import Builder
from heed.library import check, load, read_text

_SCORE = ("scale", "softcap", "causal", "alignment", "window", "alibi_slopes", "bias", "mask",
          "sinks", "dropout_p", "dropout_seed", "dropout_offset", "dropout_rng")
_VARLEN = ("cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv", "max_seqlen_q",
           "max_seqlen_kv")
_EXEC = ("backend", "deterministic", "fixed_split", "forbid_slower", "kernel", "num_threads")


def _take(options, names):
    return {name: options.pop(name) for name in names if name in options}


def _refuse_rest(function, options):
    if options:
        known = ", ".join(_SCORE + _VARLEN + ("block_table",) + _EXEC)
        raise TypeError(f"{function}() got an unexpected option {next(iter(options))!r}; "
                        f"options are {known}")


def _lse_shape(q, is_packed):
    shape = tuple(q.shape)
    return (shape[1], shape[0]) if is_packed else (shape[0], shape[2], shape[1])


def _check_rank(q, v, options):
    is_packed = options.get("cu_seqlens_q") is not None
    ranks = {"q": (q, 3 if is_packed else 4),
             "v": (v, 3 if options.get("cu_seqlens_kv") is not None else 4)}
    for name, (array, rank) in ranks.items():
        if len(array.shape) != rank:
            raise ValueError(f"{name}.ndim = {len(array.shape)}: must be {rank}")
    return is_packed


class _ForwardCall:
    """heed_forward_args_t of one call, with whatever it points to."""

    def __init__(self, function, q, k, v, o, lse, options):
        options = dict(options)
        self.build = build = Builder(q)
        self.exec = build.exec(**_take(options, _EXEC))
        self.args = abi.ForwardArgs(
            q=build.tensor(q, "q"), k=build.tensor(k, "k"), v=build.tensor(v, "v"),
            o=build.tensor(o, "o"), lse=build.tensor(lse, "lse"),
            score=build.score(**_take(options, _SCORE)),
            varlen=build.varlen(**_take(options, _VARLEN)),
            paging=build.paging(options.pop("block_table", None)), exec=self.exec)
        _refuse_rest(function, options)


def _outputs(q, v, build, options, out):
    is_packed = _check_rank(q, v, options)
    dtype = build.library.view(q).dtype
    o = out if out is not None else build.library.empty(
        tuple(q.shape[:-1]) + (v.shape[-1],), dtype, q)
    lse_dtype = "float64" if dtype == "float64" else "float32"
    return o, build.library.empty(_lse_shape(q, is_packed), lse_dtype, q)


def attention(q, k, v, *, return_lse=False, out=None, **options):
    """softmax(score(q, k)) v, exactly, without storing the scores.

    q [B,Sq,Hq,D], k [B,Skv,Hkv,D], v [B,Skv,Hkv,Dv], any strides with a contiguous last axis; with
    cu_seqlens_q / cu_seqlens_kv packed [total,H,D]; with block_table k and v are pools
    [pages,slots,Hkv,D]. float32, float16 or bfloat16, all of one library and on one device.

    Options (defaults of heed.h): scale (1/sqrt(D)), softcap, causal, alignment ("bottom_right",
    "top_left"), window (left, right; -1 or None = no bound), alibi_slopes, bias, mask, sinks,
    dropout_p, dropout_seed, dropout_offset, dropout_rng; cu_seqlens_q, cu_seqlens_kv, seqused_q,
    seqused_kv, max_seqlen_q, max_seqlen_kv (required on CUDA), block_table; backend ("auto", "cpu",
    "cuda", "reference"), deterministic, fixed_split, forbid_slower, kernel, num_threads.

    Returns o, shaped as q with Dv, of the caller's library and on its device; with return_lse
    (o, lse), lse float32 [B,Hq,Sq] (packed [Hq,total_q]), natural logarithm. out: where to write o
    (not for JAX). Raises InvalidArgumentError, UnsupportedError, ...: see heed.errors.
    """
    build = Builder(q)
    o, lse = _outputs(q, v, build, options, out)
    call = _ForwardCall("attention", q, k, v, o, lse if return_lse else None, options)
    check(load().heed_forward(c.byref(call.args)))
    o = build.library.result(o)
    return (o, build.library.result(lse)) if return_lse else o


def attention_backward(d_o, q, k, v, o, lse, *, d_lse=None, wants_d_bias=False,
                       wants_d_sinks=False, **options):
    """Gradients of attention(q, k, v, **options), given its o and lse and the gradient of o.

    Returns a dict with dq, dk, dv (shaped as q, k, v, compact) and, if asked for, d_bias (as bias)
    and d_sinks. The options must be those of the forward call.
    """
    build = Builder(q)
    library = build.library
    dtype = library.view(q).dtype
    gradients = {"dq": library.empty(tuple(q.shape), dtype, q),
                 "dk": library.empty(tuple(k.shape), dtype, q),
                 "dv": library.empty(tuple(v.shape), dtype, q)}
    for name, wanted in (("bias", wants_d_bias), ("sinks", wants_d_sinks)):
        if not wanted:
            continue
        if options.get(name) is None:
            raise ValueError(f"wants_d_{name}: needs the option {name}")
        view = library.view(options[name])
        gradients["d_" + name] = library.empty(view.shape, view.dtype, q)
    call = _ForwardCall("attention_backward", q, k, v, o, lse, options)
    build = call.build
    args = abi.BackwardArgs(
        forward=c.pointer(call.args), d_o=build.tensor(d_o, "d_o"),
        d_lse=build.tensor(d_lse, "d_lse"), exec=call.exec,
        **{name: build.tensor(array, name) for name, array in gradients.items()})
    check(load().heed_backward(c.byref(args)))
    return {name: library.result(array) for name, array in gradients.items()}


def dropout_mask(shape, dropout_p, *, seed=0, offset=0, out=None, **options):
    """The mask that attention applies: 1 kept, 0 dropped. shape (B, Hq, Sq, Skv); uint8, NumPy
    unless out is given."""
    if out is None:
        import numpy
        out = numpy.empty(shape, numpy.uint8)
    build = Builder(out)
    args = abi.DropoutMaskArgs(mask=build.tensor(out, "mask"), dropout_p=dropout_p,
                               dropout_seed=seed, dropout_offset=offset,
                               exec=build.exec(**_take(options, _EXEC)))
    _refuse_rest("dropout_mask", options)
    check(load().heed_dropout_mask(c.byref(args)))
    return out


def explain(q, k, v, *, backward=False, return_lse=True, **options):
    """What attention(q, k, v, **options) would run, in words: the kernel, its tile and workspace,
    and for each other kernel the first reason against it. backward: the same for its gradients."""
    o, lse = _outputs(q, v, Builder(q), options, None)
    call = _ForwardCall("explain", q, k, v, o, lse if return_lse or backward else None, options)
    args, op = call.args, abi.OP_FORWARD
    if backward:
        build, op = call.build, abi.OP_BACKWARD
        args = abi.BackwardArgs(forward=c.pointer(call.args), d_o=build.tensor(o, "d_o"),
                                exec=call.exec,
                                **{"d" + name: build.tensor(build.library.empty(
                                    tuple(array.shape), build.library.view(q).dtype, q), "d" + name)
                                   for name, array in (("q", q), ("k", k), ("v", v))})
    return read_text(load().heed_explain, op, c.byref(args))


def info():
    """Backends, CPU targets and devices as a dict, with the reason for each that cannot run."""
    import json
    return json.loads(read_text(load().heed_info, abi.INFO_JSON))


def check_device_errors(device_id=0):
    """Bad lengths and block-table entries that kernels on a CUDA device clamped since the last
    call: {"num_bad_lengths": ..., "num_bad_block_entries": ...}. Does not synchronise."""
    errors = abi.DeviceErrors()
    check(load().heed_check_device_errors(abi.Device(abi.DEVICE_CUDA, device_id), c.byref(errors)))
    return {"num_bad_lengths": errors.num_bad_lengths,
            "num_bad_block_entries": errors.num_bad_block_entries}
