"""heed.h through ctypes, as far as the GPU benchmarks need it. Tensors are torch CUDA tensors."""

import ctypes as c
import json

HEED_OP_FORWARD, HEED_OP_BACKWARD = 0, 1
BACKEND_CUDA = 2
DEVICE_CUDA = 2
DTYPES = {"float16": (2, 16), "bfloat16": (4, 16), "float32": (2, 32)}


class Device(c.Structure):
    _fields_ = [("device_type", c.c_int32), ("device_id", c.c_int32)]


class DType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", Device), ("ndim", c.c_int32), ("dtype", DType),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)),
                ("byte_offset", c.c_uint64)]


TensorPointer = c.POINTER(Tensor)


class ScoreArgs(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("scale", c.POINTER(c.c_double)),
                ("softcap", c.c_double), ("causal", c.c_int), ("alignment", c.c_int),
                ("window_left", c.c_int64), ("window_right", c.c_int64),
                ("alibi_slopes", TensorPointer), ("bias", TensorPointer), ("mask", TensorPointer),
                ("sinks", TensorPointer), ("dropout_p", c.c_double),
                ("dropout_seed", c.c_uint64), ("dropout_offset", c.c_uint64),
                ("dropout_rng", TensorPointer)]


class ExecArgs(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("backend", c.c_int), ("deterministic", c.c_int),
                ("fixed_split", c.c_int), ("forbid_slower", c.c_int), ("kernel", c.c_char_p),
                ("stream", c.c_void_p), ("workspace", c.c_void_p), ("workspace_bytes", c.c_size_t),
                ("allocator", c.c_void_p), ("num_threads", c.c_int32),
                ("parallel_for", c.c_void_p), ("parallel_for_context", c.c_void_p)]


class ForwardArgs(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("q", TensorPointer), ("k", TensorPointer),
                ("v", TensorPointer), ("o", TensorPointer), ("lse", TensorPointer),
                ("score", c.POINTER(ScoreArgs)), ("varlen", c.c_void_p), ("paging", c.c_void_p),
                ("exec", c.POINTER(ExecArgs))]


class BackwardArgs(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("forward", c.POINTER(ForwardArgs)),
                ("d_o", TensorPointer), ("d_lse", TensorPointer), ("dq", TensorPointer),
                ("dk", TensorPointer), ("dv", TensorPointer), ("d_bias", TensorPointer),
                ("d_sinks", TensorPointer), ("exec", c.POINTER(ExecArgs))]


class PlanInfo(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("kernel_id", c.c_char * 128),
                ("tile_q_rows", c.c_int64), ("tile_kv_rows", c.c_int64), ("num_tasks", c.c_int64),
                ("num_splits", c.c_int64), ("workspace_bytes", c.c_size_t),
                ("is_slower_substitute", c.c_int)]


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
        return Call(self, HEED_OP_FORWARD, tensors, causal, kernel)

    def backward(self, tensors, causal, kernel=None):
        return Call(self, HEED_OP_BACKWARD, tensors, causal, kernel)


class Call:
    """One planned and prepared call with its own workspace.

    tensors: dict of torch tensors q, k, v, o, lse and, for backward, d_o, dq, dk, dv.
    """

    def __init__(self, heed, op, tensors, causal, kernel):
        import torch
        self.heed, self.op, self.keep = heed, op, [tensors]
        self.score = ScoreArgs(struct_size=c.sizeof(ScoreArgs), window_left=-1, window_right=-1,
                               causal=int(causal))
        self.exec = ExecArgs(struct_size=c.sizeof(ExecArgs), backend=BACKEND_CUDA,
                             kernel=kernel.encode() if kernel else None)
        pointers = {name: self._tensor(tensor) for name, tensor in tensors.items()}
        self.forward_args = ForwardArgs(
            struct_size=c.sizeof(ForwardArgs), score=c.pointer(self.score),
            exec=c.pointer(self.exec), **{n: pointers[n] for n in ("q", "k", "v", "o", "lse")})
        self.args = self.forward_args
        if op == HEED_OP_BACKWARD:
            self.args = BackwardArgs(
                struct_size=c.sizeof(BackwardArgs), forward=c.pointer(self.forward_args),
                exec=c.pointer(self.exec), **{n: pointers[n] for n in ("d_o", "dq", "dk", "dv")})
        self.plan = PlanInfo(struct_size=c.sizeof(PlanInfo))
        heed.check(heed.library.heed_plan(op, c.byref(self.args), c.byref(self.plan)), "heed_plan")
        heed.check(heed.library.heed_prepare(op, c.byref(self.args)), "heed_prepare")
        if self.plan.workspace_bytes:
            # All ones: NaN to a kernel that reads before it writes.
            workspace = torch.full((self.plan.workspace_bytes,), 255, dtype=torch.uint8,
                                   device=tensors["q"].device)
            self.keep.append(workspace)
            self.exec.workspace = workspace.data_ptr()
            self.exec.workspace_bytes = workspace.numel()
        self.function = (heed.library.heed_backward if op == HEED_OP_BACKWARD
                         else heed.library.heed_forward)
        self.reference = c.byref(self.args)

    def _tensor(self, tensor):
        shape = (c.c_int64 * tensor.dim())(*tensor.shape)
        strides = (c.c_int64 * tensor.dim())(*tensor.stride())
        code, bits = DTYPES[str(tensor.dtype).split(".")[1]]
        result = Tensor(data=tensor.data_ptr(), device=Device(DEVICE_CUDA, tensor.device.index),
                        ndim=tensor.dim(), dtype=DType(code, bits, 1), shape=shape,
                        strides=strides, byte_offset=0)
        self.keep += [shape, strides, result]
        return c.pointer(result)

    def __call__(self, stream=0):
        self.exec.stream = stream
        status = self.function(self.reference)
        if status:
            self.heed.check(status, "heed")

    @property
    def kernel_id(self):
        return self.plan.kernel_id.decode()
