"""The operations of heed on plain arrays, without gradients. Shapes and the meaning of every option
are those of heed.h: B batch, Hq and Hkv query and key-value heads, Sq and Skv lengths, D and Dv
head dims of k and v."""

import ctypes as c

from heed import abi
from heed.arrays import is_torch, library_of
from heed.calls import Builder, choice, integer, real
from heed.library import check, load, read_text

_SCORE = ("scale", "softcap", "causal", "alignment", "window", "alibi_slopes", "bias", "mask",
          "sinks", "dropout_p", "dropout_seed", "dropout_offset", "dropout_rng")
_VARLEN = ("cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv", "max_seqlen_q",
           "max_seqlen_kv")
_EXEC = ("backend", "deterministic", "fixed_split", "forbid_slower", "kernel", "num_threads")


OPTIONS = _SCORE + _VARLEN + ("block_table",) + _EXEC  # of attention


def _take(options, names):
    return {name: options.pop(name) for name in names if name in options}


def refuse_rest(function, options, known=OPTIONS):
    """TypeError if options are left over."""
    if options:
        known = ", ".join(known)
        raise TypeError(f"{function}() got an unexpected option {next(iter(options))!r}; "
                        f"options are {known}")


def lse_shape(q, is_packed):
    """Shape of the lse of q [B,Sq,Hq,D] or packed [total_q,Hq,D]."""
    shape = tuple(q.shape)
    return (shape[1], shape[0]) if is_packed else (shape[0], shape[2], shape[1])


def _require_rank(name, array, rank):
    library_of(array, name)
    if len(array.shape) != rank:
        raise ValueError(f"{name}.ndim = {len(array.shape)}: must be {rank}")


def check_rank(q, v, options):
    """Whether q is packed. ValueError where q or v has not the rank that the options ask for."""
    is_packed = options.get("cu_seqlens_q") is not None
    _require_rank("q", q, 3 if is_packed else 4)
    _require_rank("v", v, 3 if options.get("cu_seqlens_kv") is not None else 4)
    return is_packed


class ForwardCall:
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
        refuse_rest(function, options)


def dtype_of(array, name):
    """Name of an array's dtype. TypeError or ValueError, which name the argument, for an array that
    heed cannot read."""
    try:
        return library_of(array).view(array).dtype
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _outputs(q, v, build, options, out):
    is_packed = check_rank(q, v, options)
    dtype = dtype_of(q, "q")
    o = out if out is not None else build.library.empty(
        tuple(q.shape[:-1]) + (v.shape[-1],), dtype, q)
    lse_dtype = "float64" if dtype == "float64" else "float32"
    lse = build.library.empty(lse_shape(q, is_packed), lse_dtype, q)
    if is_packed:
        # Rows outside every sequence are not written.
        if out is None:
            o[...] = 0
        lse[...] = -float("inf")
    return o, lse


_torch_tensor = _torch_attention = None  # once heed.torch is imported


def use_torch(tensor, attention):
    """Hands attention() of torch tensors to heed.torch, which calls this."""
    global _torch_tensor, _torch_attention
    _torch_tensor, _torch_attention = tensor, attention


def attention(q, k, v, *, return_lse=False, out=None, **options):
    """softmax(score(q, k)) v, exactly, without storing the scores.

    q [B,Sq,Hq,D], k [B,Skv,Hkv,D], v [B,Skv,Hkv,Dv], any strides that are
    not negative, with a contiguous last axis; with
    cu_seqlens_q / cu_seqlens_kv packed [total,H,D]; with block_table k and v are pools
    [pages,slots,Hkv,D]. float32, float16 or bfloat16, all of one library and on one device. int8
    tensors with scales are taken by the C library alone: heed_int8_args_t of heed.h.

    Options (defaults of heed.h): scale (1/sqrt(D)), softcap, causal, alignment ("bottom_right",
    "top_left"), window (left, right; -1 or None = no bound), alibi_slopes, bias, mask, sinks,
    dropout_p, dropout_seed, dropout_offset, dropout_rng; cu_seqlens_q, cu_seqlens_kv, seqused_q,
    seqused_kv, max_seqlen_q, max_seqlen_kv (required on CUDA), block_table; backend ("auto", "cpu",
    "cuda", "reference"), deterministic, fixed_split, forbid_slower, kernel, num_threads.

    Returns o, shaped as q with Dv, of the caller's library and on its device; with return_lse
    (o, lse), lse float32 [B,Hq,Sq] (packed [Hq,total_q]), natural logarithm. Packed rows outside
    every sequence are 0, their lse -inf. out: where to write o (not for JAX), those rows excepted.
    What a mask hides from some rows only must be finite in v. Raises InvalidArgumentError,
    UnsupportedError, ...: see heed.errors. Torch tensors that require gradients get them: see
    heed.torch.
    """
    if type(q) is not _torch_tensor:
        if not is_torch(q):
            return run_attention(q, k, v, return_lse=return_lse, out=out, **options)
        import heed.torch  # which calls use_torch
    return _torch_attention(q, k, v, return_lse=return_lse, out=out, **options)


def run_attention(q, k, v, *, return_lse, out, **options):
    """attention() without gradients."""
    build = Builder(q)
    if out is not None:
        build.output(out, "out")
    o, lse = _outputs(q, v, build, options, out)
    call = ForwardCall("attention", q, k, v, o, lse if return_lse else None, options)
    call.build.give_workspace(abi.OP_FORWARD, call.args, call.exec)
    check(load().heed_forward(c.byref(call.args)))
    o = build.library.result(o)
    return (o, build.library.result(lse)) if return_lse else o


def attention_backward(d_o, q, k, v, o, lse, *, d_lse=None, wants_d_bias=False,
                       wants_d_sinks=False, **options):
    """Gradients of attention(q, k, v, **options), given its o and lse and the gradient of o.

    Returns a dict with dq, dk, dv (shaped as q, k, v, compact) and, if asked for, d_bias (as bias,
    but 1 along axes that it repeats by a stride of 0: their sum) and d_sinks. The options must be
    those of the forward call.
    """
    build = Builder(q)
    for name, array in (("k", k), ("v", v)):
        library_of(array, name)
    library = build.library
    dtype = dtype_of(q, "q")
    gradients = {"dq": library.empty(tuple(q.shape), dtype, q),
                 "dk": library.empty(tuple(k.shape), dtype, q),
                 "dv": library.empty(tuple(v.shape), dtype, q)}
    for name, wanted in (("bias", wants_d_bias), ("sinks", wants_d_sinks)):
        if not wanted:
            continue
        if options.get(name) is None:
            raise ValueError(f"wants_d_{name}: needs the option {name}")
        dtype_of(options[name], name)
        view = library.view(options[name])
        repeats = 0 not in view.shape  # strides of an empty array may be anything
        shape = tuple(1 if repeats and stride == 0 else extent
                      for extent, stride in zip(view.shape, view.strides))
        gradients["d_" + name] = library.empty(shape, view.dtype, q)
    call = ForwardCall("attention_backward", q, k, v, o, lse, options)
    build = call.build
    args = abi.BackwardArgs(
        forward=c.pointer(call.args), d_o=build.tensor(d_o, "d_o"),
        d_lse=build.tensor(d_lse, "d_lse"), exec=call.exec,
        **{name: build.tensor(array, name) for name, array in gradients.items()})
    build.give_workspace(abi.OP_BACKWARD, args, call.exec)
    check(load().heed_backward(c.byref(args)))
    return {name: library.result(array) for name, array in gradients.items()}


def refuse_gradients(function, *arrays):
    for array in arrays:
        if is_torch(array) and array.requires_grad:
            import torch
            if torch.is_grad_enabled():
                raise ValueError(f"{function}: has no gradient; call it under torch.no_grad()")


def decode_dim_v(q, v_cache, v_new, kv_format, head_dim_v):
    if head_dim_v is not None:
        return integer("head_dim_v", head_dim_v, 1)
    if v_new is not None:
        library_of(v_new, "v_new")
        return v_new.shape[-1]
    num_bytes = v_cache.shape[-1]
    if kv_format == "plain":
        return num_bytes
    choice("kv_format", kv_format, abi.KV_FORMATS)
    dim = q.shape[-1]
    if kv_format in ("int8", "fp8_e4m3"):
        # An interleaved cache fills rows up to 4 bytes.
        return dim if 0 <= num_bytes - dim < 4 else num_bytes
    if kv_format == "int4" and dim % 2:
        raise ValueError("head_dim_v = None: must be given for int4 with an odd head dim")
    if _PAYLOAD[kv_format](dim)[0] != num_bytes:
        raise ValueError("head_dim_v = None: must be given where it differs from q.shape[3]")
    return dim


CACHE_OPTIONS = ("cache_batch_index", "cache_leftpad", "rotary_cos", "rotary_sin")


def decode(q, k_cache, v_cache, cache_lengths, k_new=None, v_new=None, *, return_lse=False,
           out=None, **options):
    """Appends k_new and v_new to the caches, in place, and attends to all of them.

    q [B,Snew,Hq,D]; k_cache [Bc,S,Hkv,D], v_cache [Bc,S,Hkv,Dv], or pools [pages,slots,Hkv,D] with
    block_table int32 [B,most]; k_new [B,Snew,Hkv,D], v_new [B,Snew,Hkv,Dv], written at
    cache_lengths int32 [B], which does not count them and is not changed. cache_batch_index int32
    [B], cache_leftpad int32 [B]; rotary_cos, rotary_sin [positions, rot/2] rotate q and k_new.
    kv_format other than "plain": payload caches as quantize_kv makes them, with k_scales and
    v_scales, and head_dim_v where Dv differs from D and v_new does not tell it.
    rotary_layout ("interleaved", "half_split"), num_splits (0: heed's choice), kv_layout ("rows",
    "interleaved"). Other options are those of attention. Returns o [B,Snew,Hq,Dv]; with return_lse
    (o, lse float32 [B,Hq,Snew]).
    """
    if is_torch(q):
        import heed.torch
        return heed.torch.decode(q, k_cache, v_cache, cache_lengths, k_new, v_new,
                                 return_lse=return_lse, out=out, **options)
    return run_decode(q, k_cache, v_cache, cache_lengths, k_new, v_new, return_lse=return_lse,
                      out=out, **options)


def run_decode(q, k_cache, v_cache, cache_lengths, k_new=None, v_new=None, *, return_lse=False,
               rotary_layout="interleaved", num_splits=0, kv_format="plain", kv_layout="rows",
               k_scales=None, v_scales=None, head_dim_v=None, block_table=None, out=None,
               **options):
    """decode() on arrays as they are, past torch's dispatcher."""
    refuse_gradients("decode", q, k_new, v_new)
    build = Builder(q)
    library = build.library
    for name, array in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        _require_rank(name, array, 4)
    dim_v = decode_dim_v(q, v_cache, v_new, kv_format, head_dim_v)
    if out is not None:
        build.output(out, "out")
    if k_new is not None or v_new is not None:
        build.output(k_cache, "k_cache")
        build.output(v_cache, "v_cache")
    o = out if out is not None else library.empty(tuple(q.shape[:-1]) + (dim_v,),
                                                  dtype_of(q, "q"), q)
    lse = library.empty(lse_shape(q, False), "float32", q)
    quant = None
    has_scales = k_scales is not None or v_scales is not None
    if kv_format != "plain" or kv_layout != "rows" or has_scales:
        quant = c.pointer(abi.KvQuantArgs(
            format=choice("kv_format", kv_format, abi.KV_FORMATS),
            layout=choice("kv_layout", kv_layout, abi.KV_LAYOUTS),
            k_scales=build.tensor(k_scales, "k_scales"),
            v_scales=build.tensor(v_scales, "v_scales")))
    arrays = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k_new": k_new, "v_new": v_new,
              "o": o, "lse": lse if return_lse else None, "cache_lengths": cache_lengths,
              **{name: options.pop(name, None) for name in CACHE_OPTIONS}}
    exec_args, score = build.exec(**_take(options, _EXEC)), build.score(**_take(options, _SCORE))
    refuse_rest("decode", options, _SCORE + CACHE_OPTIONS + ("block_table",) + _EXEC)
    args = abi.DecodeArgs(
        rotary_layout=choice("rotary_layout", rotary_layout, abi.ROTARY_LAYOUTS),
        num_splits=integer("num_splits", num_splits, -2**31, 2**31 - 1), quant=quant, score=score,
        paging=build.paging(block_table),
        exec=exec_args, **{name: build.tensor(array, name) for name, array in arrays.items()})
    build.give_workspace(abi.OP_DECODE, args, exec_args)
    check(load().heed_decode(c.byref(args)))
    o = library.result(o)
    return (o, library.result(lse)) if return_lse else o


def combine(o_partial, lse_partial, *, sinks=None, dtype=None, out=None, **options):
    """Merges partial results of disjoint sets of keys, in index order: o_partial float32
    [P,B,Sq,Hq,Dv], lse_partial float32 [P,B,Hq,Sq] -> (o [B,Sq,Hq,Dv] of dtype, by default float32,
    lse float32 [B,Hq,Sq]). sinks float32 [Hq], added once."""
    refuse_gradients("combine", o_partial, lse_partial)
    build = Builder(o_partial, "o_partial")
    library = build.library
    _require_rank("o_partial", o_partial, 5)
    _require_rank("lse_partial", lse_partial, 4)
    if not isinstance(dtype, (str, type(None))):
        raise TypeError(f"dtype = {dtype!r}: must be a name such as 'float16'")
    if out is not None:
        build.output(out, "out")
    o = out if out is not None else library.empty(tuple(o_partial.shape[1:]), dtype or "float32",
                                                  o_partial)
    lse = library.empty(tuple(lse_partial.shape[1:]), "float32", o_partial)
    arrays = {"o_partial": o_partial, "lse_partial": lse_partial, "sinks": sinks, "o": o,
              "lse": lse}
    exec_args = build.exec(**_take(options, _EXEC))
    refuse_rest("combine", options, _EXEC)
    args = abi.CombineArgs(exec=exec_args, **{name: build.tensor(array, name)
                                              for name, array in arrays.items()})
    check(load().heed_combine(c.byref(args)))
    return library.result(o), library.result(lse)


# Bytes of a row of D values, and scales of it.
_PAYLOAD = {
    "int8": lambda dim: (dim, 1), "fp8_e4m3": lambda dim: (dim, 1),
    "int4": lambda dim: ((dim + 1) // 2, 1), "q8_0": lambda dim: ((dim + 31) // 32 * 34, 0),
    "q4_0": lambda dim: ((dim + 31) // 32 * 18, 0),
}


def quantize_kv(source, kv_format="int8", *, groups=1, kv_layout="rows", **options):
    """(payload uint8 [B,S,Hkv,bytes], scales float32 [B,S,Hkv,groups] or None) of source
    [B,S,Hkv,D]: what decode takes as a cache of that kv_format. groups: scales per row."""
    build = Builder(source, "source")
    library = build.library
    _require_rank("source", source, 4)
    choice("kv_format", kv_format, _PAYLOAD)
    num_bytes, num_scales = _PAYLOAD[kv_format](source.shape[-1])
    if kv_layout == "interleaved":
        num_bytes = (num_bytes + 3) // 4 * 4
    if integer("groups", groups, 1) != 1 and not num_scales:
        raise ValueError(f"groups = {groups}: must be 1 for {kv_format}, whose blocks hold scales")
    payload = library.empty(tuple(source.shape[:-1]) + (num_bytes,), "uint8", source)
    scales = None
    if num_scales:
        scales = library.empty(tuple(source.shape[:-1]) + (groups,), "float32", source)
    exec_args = build.exec(**_take(options, _EXEC))
    refuse_rest("quantize_kv", options, _EXEC)
    args = abi.QuantizeKvArgs(
        source=build.tensor(source, "source"), payload=build.tensor(payload, "payload"),
        scales=build.tensor(scales, "scales"), format=abi.KV_FORMATS[kv_format],
        layout=choice("kv_layout", kv_layout, abi.KV_LAYOUTS), exec=exec_args)
    check(load().heed_quantize_kv(c.byref(args)))
    return library.result(payload), None if scales is None else library.result(scales)


def dropout_mask(shape, dropout_p, *, seed=0, offset=0, out=None, **options):
    """The mask that attention applies: 1 kept, 0 dropped. shape (B, Hq, Sq, Skv); uint8, NumPy
    unless out is given."""
    if out is None:
        import numpy
        out = numpy.empty(shape, numpy.uint8)
    build = Builder(out, "out")
    if tuple(out.shape) != tuple(shape):
        raise ValueError(f"out.shape = {tuple(out.shape)}: must be {tuple(shape)}")
    args = abi.DropoutMaskArgs(mask=build.output(out, "out"),
                               dropout_p=real("dropout_p", dropout_p),
                               dropout_seed=integer("seed", seed, 0, 2**64 - 1),
                               dropout_offset=integer("offset", offset, 0, 2**64 - 1),
                               exec=build.exec(**_take(options, _EXEC)))
    refuse_rest("dropout_mask", options, _EXEC)
    check(load().heed_dropout_mask(c.byref(args)))
    return out


def planned_call(name, q, k, v, backward, return_lse, options):
    """(op, args) of attention(q, k, v, **options), or of its gradients, without the call; args
    keeps alive what it points to. name: of the function that asks."""
    o, lse = _outputs(q, v, Builder(q), options, None)
    call = ForwardCall(name, q, k, v, o, lse if return_lse or backward else None, options)
    args, op = call.args, abi.OP_FORWARD
    if backward:
        build, op = call.build, abi.OP_BACKWARD
        args = abi.BackwardArgs(forward=c.pointer(call.args), d_o=build.tensor(o, "d_o"),
                                exec=call.exec,
                                **{"d" + name: build.tensor(build.library.empty(
                                    tuple(array.shape), dtype_of(q, "q"), q), "d" + name)
                                   for name, array in (("q", q), ("k", k), ("v", v))})
    args.keeps_alive = call
    return op, args


def explain(q, k, v, *, backward=False, return_lse=True, **options):
    """What attention(q, k, v, **options) would run, in words: the kernel, its tile and workspace,
    and for each other kernel the first reason against it. backward: the same for its gradients."""
    op, args = planned_call("explain", q, k, v, backward, return_lse, options)
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
