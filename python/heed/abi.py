"""heed.h as ctypes structures, field by field. tests/python/test_abi.py compares the layout with
the C compiler's; what each field means is said in heed.h alone."""

import ctypes as c

DEVICE_CPU, DEVICE_CUDA, DEVICE_CUDA_HOST, DEVICE_CUDA_MANAGED = 1, 2, 3, 13
DTYPE_INT, DTYPE_UINT, DTYPE_FLOAT, DTYPE_BFLOAT = 0, 1, 2, 4
DTYPE_BOOL, DTYPE_FLOAT8_E4M3FN = 6, 10

(OK, INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY, DEVICE_ERROR, UNAVAILABLE, INTERNAL) = range(7)

OP_FORWARD, OP_BACKWARD, OP_DECODE, OP_COMBINE, OP_QUANTIZE_KV, OP_DROPOUT_MASK = range(6)

BACKENDS = {"auto": 0, "cpu": 1, "cuda": 2, "webgpu": 3, "reference": 4}
ALIGNMENTS = {"bottom_right": 0, "top_left": 1}
ROTARY_LAYOUTS = {"interleaved": 0, "half_split": 1}
KV_FORMATS = {"plain": 0, "int8": 1, "fp8_e4m3": 2, "int4": 3, "q8_0": 4, "q4_0": 5}
KV_LAYOUTS = {"rows": 0, "interleaved": 1}
INFO_TEXT, INFO_JSON = 0, 1


class Device(c.Structure):
    _fields_ = [("device_type", c.c_int32), ("device_id", c.c_int32)]


class DType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", Device), ("ndim", c.c_int32), ("dtype", DType),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)),
                ("byte_offset", c.c_uint64)]


TensorPointer = c.POINTER(Tensor)


class ArgStruct(c.Structure):
    """A structure that begins with its own size. Fields not given are neutral, as HEED_..._INIT."""

    neutral = {}

    def __init__(self, **fields):
        super().__init__(struct_size=c.sizeof(type(self)), **{**self.neutral, **fields})


class ScoreArgs(ArgStruct):
    neutral = {"window_left": -1, "window_right": -1}
    _fields_ = [("struct_size", c.c_size_t), ("scale", c.POINTER(c.c_double)),
                ("softcap", c.c_double), ("causal", c.c_int), ("alignment", c.c_int),
                ("window_left", c.c_int64), ("window_right", c.c_int64),
                ("alibi_slopes", TensorPointer), ("bias", TensorPointer), ("mask", TensorPointer),
                ("sinks", TensorPointer), ("dropout_p", c.c_double),
                ("dropout_seed", c.c_uint64), ("dropout_offset", c.c_uint64),
                ("dropout_rng", TensorPointer)]


class VarlenArgs(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("cu_seqlens_q", TensorPointer),
                ("cu_seqlens_kv", TensorPointer), ("seqused_q", TensorPointer),
                ("seqused_kv", TensorPointer), ("max_seqlen_q", c.c_int64),
                ("max_seqlen_kv", c.c_int64)]


class PagingArgs(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("block_table", TensorPointer)]


class ExecArgs(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("backend", c.c_int), ("deterministic", c.c_int),
                ("fixed_split", c.c_int), ("forbid_slower", c.c_int), ("kernel", c.c_char_p),
                ("stream", c.c_void_p), ("workspace", c.c_void_p), ("workspace_bytes", c.c_size_t),
                ("allocator", c.c_void_p), ("num_threads", c.c_int32),
                ("parallel_for", c.c_void_p), ("parallel_for_context", c.c_void_p)]


class Int8Args(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("q_scales", TensorPointer),
                ("k_scales", TensorPointer), ("v_scales", TensorPointer),
                ("q_block_rows", c.c_int64), ("k_block_rows", c.c_int64),
                ("v_block_rows", c.c_int64), ("softmax", c.c_int), ("values", c.c_int)]


class ForwardArgs(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("q", TensorPointer), ("k", TensorPointer),
                ("v", TensorPointer), ("o", TensorPointer), ("lse", TensorPointer),
                ("score", c.POINTER(ScoreArgs)), ("varlen", c.POINTER(VarlenArgs)),
                ("paging", c.POINTER(PagingArgs)), ("exec", c.POINTER(ExecArgs)),
                ("int8", c.POINTER(Int8Args))]


class BackwardArgs(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("forward", c.POINTER(ForwardArgs)),
                ("d_o", TensorPointer), ("d_lse", TensorPointer), ("dq", TensorPointer),
                ("dk", TensorPointer), ("dv", TensorPointer), ("d_bias", TensorPointer),
                ("d_sinks", TensorPointer), ("exec", c.POINTER(ExecArgs))]


class KvQuantArgs(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("format", c.c_int), ("layout", c.c_int),
                ("k_scales", TensorPointer), ("v_scales", TensorPointer)]


class DecodeArgs(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("q", TensorPointer), ("k_cache", TensorPointer),
                ("v_cache", TensorPointer), ("k_new", TensorPointer), ("v_new", TensorPointer),
                ("o", TensorPointer), ("lse", TensorPointer), ("cache_lengths", TensorPointer),
                ("cache_batch_index", TensorPointer), ("cache_leftpad", TensorPointer),
                ("rotary_cos", TensorPointer), ("rotary_sin", TensorPointer),
                ("rotary_layout", c.c_int), ("num_splits", c.c_int32),
                ("quant", c.POINTER(KvQuantArgs)), ("score", c.POINTER(ScoreArgs)),
                ("paging", c.POINTER(PagingArgs)), ("exec", c.POINTER(ExecArgs))]


class CombineArgs(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("o_partial", TensorPointer),
                ("lse_partial", TensorPointer), ("sinks", TensorPointer), ("o", TensorPointer),
                ("lse", TensorPointer), ("exec", c.POINTER(ExecArgs))]


class QuantizeKvArgs(ArgStruct):
    neutral = {"format": KV_FORMATS["int8"]}
    _fields_ = [("struct_size", c.c_size_t), ("source", TensorPointer), ("payload", TensorPointer),
                ("scales", TensorPointer), ("format", c.c_int), ("layout", c.c_int),
                ("exec", c.POINTER(ExecArgs))]


class DropoutMaskArgs(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("mask", TensorPointer), ("dropout_p", c.c_double),
                ("dropout_seed", c.c_uint64), ("dropout_offset", c.c_uint64),
                ("exec", c.POINTER(ExecArgs))]


class PlanInfo(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("kernel_id", c.c_char * 128),
                ("tile_q_rows", c.c_int64), ("tile_kv_rows", c.c_int64), ("num_tasks", c.c_int64),
                ("num_splits", c.c_int64), ("workspace_bytes", c.c_size_t),
                ("is_slower_substitute", c.c_int)]


class DeviceErrors(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("num_bad_lengths", c.c_int64),
                ("num_bad_block_entries", c.c_int64)]


class TuneRow(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("kernel_id", c.c_char_p), ("verdict", c.c_int),
                ("is_chosen", c.c_int), ("seconds", c.c_double), ("ratio", c.c_double),
                ("spread", c.c_double), ("reason", c.c_char_p)]


TuneReport = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(TuneRow))


class TuneOptions(ArgStruct):
    _fields_ = [("struct_size", c.c_size_t), ("dry_run", c.c_int), ("num_rounds", c.c_int32),
                ("slice_seconds", c.c_double), ("report", TuneReport),
                ("report_context", c.c_void_p)]


# C name -> structure, for the layout test.
STRUCTS = {
    "heed_device_t": Device, "heed_dtype_t": DType, "heed_tensor_t": Tensor,
    "heed_score_args_t": ScoreArgs, "heed_varlen_args_t": VarlenArgs,
    "heed_paging_args_t": PagingArgs, "heed_exec_args_t": ExecArgs,
    "heed_int8_args_t": Int8Args,
    "heed_forward_args_t": ForwardArgs, "heed_backward_args_t": BackwardArgs,
    "heed_kv_quant_args_t": KvQuantArgs, "heed_decode_args_t": DecodeArgs,
    "heed_combine_args_t": CombineArgs, "heed_quantize_kv_args_t": QuantizeKvArgs,
    "heed_dropout_mask_args_t": DropoutMaskArgs, "heed_plan_info_t": PlanInfo,
    "heed_device_errors_t": DeviceErrors,
    "heed_tune_row_t": TuneRow, "heed_tune_options_t": TuneOptions,
}
