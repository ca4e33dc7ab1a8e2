"""heed_forward for torch tensors with little overhead: argument structures are kept for each kind
of call (shapes, strides, dtypes, options), and a call only fills in addresses and the stream."""

import ctypes as c
import threading

import torch

from heed import abi, operations
from heed.calls import planned_workspace_bytes
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
        self.is_o_like_q = q.shape[-1] == v.shape[-1] and q.is_contiguous()
        self.is_packed = is_packed
        o, lse = self.outputs(q)
        call = operations.ForwardCall("attention", q, k, v, o, lse, options)
        args = call.args
        self.build, self.args, self.exec = call.build, c.pointer(args), args.exec.contents
        self.q, self.k, self.v = args.q.contents, args.k.contents, args.v.contents
        self.o, self.lse = args.o.contents, args.lse.contents if wants_lse else None
        tensors = [name for name, value in options.items() if isinstance(value, torch.Tensor)]
        for name in tensors:
            if name not in call.build.named:
                raise TypeError(f"heed.attention: {name}: must be a number, not a tensor; "
                                f"{name}.item() is one")
        self.named = [(name, call.build.named[name]) for name in tensors]
        self.raw_stream = torch._C._cuda_getCurrentRawStream if q.is_cuda else None
        self.device_index = q.device.index
        self.function = load().heed_forward
        call.build.forget_arrays()

    def outputs(self, q):
        if self.is_packed:  # rows outside every sequence are not written
            o = q.new_zeros(self.o_shape)
        elif self.is_o_like_q:
            o = torch.empty_like(q)
        else:
            o = torch.empty(self.o_shape, dtype=q.dtype, device=q.device)
        if self.lse_shape is None:
            return o, None
        lse = torch.empty(self.lse_shape, dtype=self.lse_dtype, device=q.device)
        return o, lse.fill_(-torch.inf) if self.is_packed else lse


_SIMPLE = frozenset([bool, int, float, str, tuple, type(None)])  # to look at quickly


def kind_of(q, k, v, options, wants_lse):
    """What the structures of a call depend on. Hashable if all options are."""
    kind = (q.shape, q.stride(), q.dtype, q.device, k.shape, k.stride(), k.dtype, k.device,
            v.shape, v.stride(), v.dtype, v.device, wants_lse, q.is_neg(), k.is_neg(), v.is_neg())
    for name, value in options.items():
        if type(value) is float:
            value = float, value  # not equal to True or to an integer, which some options demand
        elif type(value) not in _SIMPLE and isinstance(value, torch.Tensor):
            value = (type(value), value.shape, value.stride(), value.dtype, value.device,
                     value.is_neg())
        kind += name, value
    return kind


def find(kind):
    """The structures kept for this kind of call by this thread, or None."""
    try:
        return _kept.calls.get(kind)
    except (AttributeError, TypeError):  # the first call of a thread; an option without a hash
        return None


def _keep(kind, call):
    if not hasattr(_kept, "calls"):
        _kept.calls = {}
    elif len(_kept.calls) >= MOST_KEPT:
        _kept.calls.clear()
    _kept.calls[kind] = call


def _record(call, o, lse):
    """The end of run() while a CUDA graph is recorded, which owns the workspace too."""
    num_bytes = planned_workspace_bytes(abi.OP_FORWARD, call.args.contents)
    workspace = torch.empty(num_bytes, dtype=torch.uint8, device=o.device)
    call.exec.workspace_bytes = num_bytes
    call.exec.workspace = workspace.data_ptr() or None
    try:
        check(call.function(call.args))
    finally:
        call.exec.workspace, call.exec.workspace_bytes = None, 0
    return o, lse


def run(call, q, k, v, options):
    """(o, lse) of a call of the kind whose structures these are; lse None unless wanted."""
    o, lse = call.outputs(q)
    call.q.data = q.data_ptr()
    call.k.data = k.data_ptr()
    call.v.data = v.data_ptr()
    call.o.data = o.data_ptr()
    if lse is not None:
        call.lse.data = lse.data_ptr()
    for name, tensor in call.named:
        tensor.data = options[name].data_ptr()
    if call.raw_stream is not None:
        call.exec.stream = call.raw_stream(call.device_index)
        if torch._C._cuda_isCurrentStreamCapturing():
            return _record(call, o, lse)
    status = call.function(call.args)
    if status:
        check(status)
    return o, lse


def forward(q, k, v, options, wants_lse=True):
    """(o, lse) of torch tensors, lse None unless wanted. options: those of heed.attention."""
    kind = kind_of(q, k, v, options, wants_lse)
    call = find(kind)
    if call is None:
        call = _Call(q, k, v, options, wants_lse)
        _keep(kind, call)
    return run(call, q, k, v, options)
