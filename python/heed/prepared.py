"""heed_forward for torch tensors with little overhead: argument structures are kept for each kind
of call (shapes, strides, dtypes, options), and a call only fills in addresses and the stream."""

import ctypes as c
import threading

import torch

from heed import operations
from heed.library import check, load

# Kinds of calls whose structures are kept, for each thread.
MOST_KEPT = 512

_kept = threading.local()


class _Call:
    """The structures of one kind of call. Not for two threads at once."""

    def __init__(self, q, k, v, options, wants_lse):
        is_packed = operations.check_rank(q, v, options)
        self.o_shape = (*q.shape[:-1], v.shape[-1])
        self.lse_shape = operations.lse_shape(q, is_packed) if wants_lse else None
        self.lse_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
        self.is_o_like_q = q.shape[-1] == v.shape[-1]
        self.is_packed = is_packed
        o, lse = self.outputs(q)
        call = operations.ForwardCall("attention", q, k, v, o, lse, options)
        args = call.args
        self.build, self.args, self.exec = call.build, c.pointer(args), args.exec.contents
        self.q, self.k, self.v = args.q.contents, args.k.contents, args.v.contents
        self.o, self.lse = args.o.contents, args.lse.contents if wants_lse else None
        self.named = [(name, call.build.named[name]) for name, value in options.items()
                      if isinstance(value, torch.Tensor)]
        self.raw_stream = torch._C._cuda_getCurrentRawStream if q.is_cuda else None
        self.device_index = q.device.index
        self.function = load().heed_forward
        call.build.forget_arrays()

    def outputs(self, q):
        if self.is_packed:  # rows outside every sequence are not written
            o = q.new_zeros(self.o_shape)
        elif self.is_o_like_q:
            o = torch.empty_like(q, memory_format=torch.contiguous_format)
        else:
            o = q.new_empty(self.o_shape)
        if self.lse_shape is None:
            return o, None
        lse = torch.empty(self.lse_shape, dtype=self.lse_dtype, device=q.device)
        return o, lse.fill_(-torch.inf) if self.is_packed else lse


def _layout(value):
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.device, value.is_neg()
    return value


def forward(q, k, v, options, wants_lse=True):
    """(o, lse) of torch tensors, lse None unless wanted. options: those of heed.attention."""
    key = (q.shape, q.stride(), q.dtype, q.device, k.shape, k.stride(), k.dtype, k.device,
           v.shape, v.stride(), v.dtype, v.device, wants_lse, q.is_neg(), k.is_neg(), v.is_neg())
    if options:
        key += tuple([(name, _layout(value)) for name, value in options.items()])
    try:
        calls = _kept.calls
    except AttributeError:
        calls = _kept.calls = {}
    call = calls.get(key)
    if call is None:
        call = _Call(q, k, v, options, wants_lse)
        if len(calls) >= MOST_KEPT:
            calls.clear()
        calls[key] = call
    o, lse = call.outputs(q)
    call.q.data = q.data_ptr()
    call.k.data = k.data_ptr()
    call.v.data = v.data_ptr()
    call.o.data = o.data_ptr()
    if wants_lse:
        call.lse.data = lse.data_ptr()
    for name, tensor in call.named:
        tensor.data = options[name].data_ptr()
    if call.raw_stream is not None:
        call.exec.stream = call.raw_stream(call.device_index)
    status = call.function(call.args)
    if status:
        check(status)
    return o, lse
