"""heed.h for the GPU benchmarks: planned, prepared calls on torch CUDA tensors, by the structures
of the Python package."""

import ctypes as c
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from heed import abi  # noqa: E402
from heed.arrays import code_and_bits  # noqa: E402


class HeedError(RuntimeError):
    pass


class Heed:
    def __init__(self, path):
        self.library = c.CDLL(path)
        self.library.heed_last_error.restype = c.c_char_p
        self.library.heed_version.restype = c.c_char_p

    def check(self, status, what):
        if status != 0:
            raise HeedError(f"{what}: {self.library.heed_last_error().decode()}")

    def info(self):
        needed = c.c_size_t()
        self.check(self.library.heed_info(1, None, 0, c.byref(needed)), "heed_info")
        text = c.create_string_buffer(needed.value)
        self.check(self.library.heed_info(1, text, needed, c.byref(needed)), "heed_info")
        return json.loads(text.value)

    def forward(self, tensors, causal, kernel=None):
        return Call(self, abi.OP_FORWARD, tensors, causal, kernel)

    def backward(self, tensors, causal, kernel=None):
        return Call(self, abi.OP_BACKWARD, tensors, causal, kernel)


    def quantize_kv(self, source, format_name, groups):
        """(payload, scales) of a cache [B, S, H, D]."""
        import torch
        bytes_of_row = source.shape[-1] // (2 if format_name == "int4" else 1)
        payload = torch.empty((*source.shape[:-1], bytes_of_row), device=source.device,
                              dtype=torch.uint8)
        # One head's scales side by side: [B, S, H, G] in the order [B, H, S, G].
        batch, slots, heads, _ = source.shape
        scales = torch.empty((batch, heads, slots, groups), device=source.device,
                             dtype=torch.float32).transpose(1, 2)
        keep = []
        options = abi.ExecArgs(backend=abi.BACKENDS["cuda"],
                               stream=torch.cuda.current_stream().cuda_stream)
        args = abi.QuantizeKvArgs(source=tensor_of(source, keep), payload=tensor_of(payload, keep),
                                  scales=tensor_of(scales, keep),
                                  format=abi.KV_FORMATS[format_name], exec=c.pointer(options))
        self.check(self.library.heed_quantize_kv(c.byref(args)), "heed_quantize_kv")
        return payload, scales

    def decode(self, tensors, kernel=None):
        return DecodeCall(self, tensors, kernel)


def tensor_of(tensor, keep):
    """A torch tensor as heed.h has it; what it points to joins keep."""
    shape = (c.c_int64 * tensor.dim())(*tensor.shape)
    strides = (c.c_int64 * tensor.dim())(*tensor.stride())
    code, bits = code_and_bits(str(tensor.dtype).split(".")[1])
    result = abi.Tensor(data=tensor.data_ptr(),
                        device=abi.Device(abi.DEVICE_CUDA, tensor.device.index),
                        ndim=tensor.dim(), dtype=abi.DType(code, bits, 1), shape=shape,
                        strides=strides)
    keep += [shape, strides, result]
    return c.pointer(result)


class Call:
    """One planned and prepared call with its own workspace.

    tensors: dict of torch tensors q, k, v, o, lse and, for backward, d_o, dq, dk, dv.
    """

    def __init__(self, heed, op, tensors, causal, kernel):
        self.heed, self.op, self.keep = heed, op, [tensors]
        self.score = abi.ScoreArgs(causal=int(causal))
        self.exec = abi.ExecArgs(backend=abi.BACKENDS["cuda"],
                                 kernel=kernel.encode() if kernel else None)
        pointers = {name: self._tensor(tensor) for name, tensor in tensors.items()}
        self.forward_args = abi.ForwardArgs(
            score=c.pointer(self.score), exec=c.pointer(self.exec),
            **{n: pointers[n] for n in ("q", "k", "v", "o", "lse")})
        self.args = self.forward_args
        if op == abi.OP_BACKWARD:
            self.args = abi.BackwardArgs(
                forward=c.pointer(self.forward_args), exec=c.pointer(self.exec),
                **{n: pointers[n] for n in ("d_o", "dq", "dk", "dv")})
        self._prepare(tensors["q"].device)
        self.function = (heed.library.heed_backward if op == abi.OP_BACKWARD
                         else heed.library.heed_forward)

    def _prepare(self, device):
        """Plans and prepares self.args and gives them a workspace."""
        import torch
        heed, op = self.heed, self.op
        self.plan = abi.PlanInfo()
        heed.check(heed.library.heed_plan(op, c.byref(self.args), c.byref(self.plan)), "heed_plan")
        heed.check(heed.library.heed_prepare(op, c.byref(self.args)), "heed_prepare")
        if self.plan.workspace_bytes:
            # All ones: NaN to a kernel that reads before it writes.
            workspace = torch.full((self.plan.workspace_bytes,), 255, dtype=torch.uint8,
                                   device=device)
            self.keep.append(workspace)
            self.exec.workspace = workspace.data_ptr()
            self.exec.workspace_bytes = workspace.numel()
        self.reference = c.byref(self.args)

    def _tensor(self, tensor):
        return tensor_of(tensor, self.keep)

    def __call__(self, stream=0):
        self.exec.stream = stream
        status = self.function(self.reference)
        if status:
            self.heed.check(status, "heed")

    @property
    def kernel_id(self):
        return self.plan.kernel_id.decode()


class DecodeCall(Call):
    """tensors: q, k_cache, v_cache, o, cache_lengths; block_table where the cache is paged;
    format, k_scales and v_scales where it is quantised."""

    def __init__(self, heed, tensors, kernel):
        self.heed, self.op, self.keep = heed, abi.OP_DECODE, [tensors]
        self.exec = abi.ExecArgs(backend=abi.BACKENDS["cuda"],
                                 kernel=kernel.encode() if kernel else None)
        tensors = dict(tensors)
        format_name = tensors.pop("format", "plain")
        pointers = {name: self._tensor(tensor) for name, tensor in tensors.items()}
        table = pointers.pop("block_table", None)
        scales = {name: pointers.pop(name) for name in ("k_scales", "v_scales") if name in pointers}
        self.quant = abi.KvQuantArgs(format=abi.KV_FORMATS[format_name], **scales)
        if table is not None:
            self.paging = abi.PagingArgs(block_table=table)
        self.args = abi.DecodeArgs(exec=c.pointer(self.exec),
                                   paging=c.pointer(self.paging) if table is not None else None,
                                   quant=c.pointer(self.quant),
                                   **pointers)
        self._prepare(tensors["q"].device)
        self.function = heed.library.heed_decode
