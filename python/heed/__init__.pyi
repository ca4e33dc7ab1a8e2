"""Types of the public functions. `Array` is numpy.ndarray, torch.Tensor, jax.Array or cupy.ndarray,
one kind in each call; shapes, units and errors are in the docstrings."""

from collections.abc import Sequence
from typing import Any, Literal, Optional, TypeVar, overload

Array = TypeVar("Array")
Backend = Literal["auto", "cpu", "cuda", "webgpu", "reference"]
Alignment = Literal["bottom_right", "top_left"]
KvFormat = Literal["plain", "int8", "fp8_e4m3", "int4", "q8_0", "q4_0"]
KvLayout = Literal["rows", "interleaved"]
Window = tuple[Optional[int], Optional[int]]

class HeedError(RuntimeError):
    status: str

class InvalidArgumentError(HeedError, ValueError): ...
class UnsupportedError(HeedError, NotImplementedError): ...
class OutOfMemoryError(HeedError, MemoryError): ...
class DeviceError(HeedError): ...
class UnavailableError(HeedError): ...

@overload
def attention(
    q: Array, k: Array, v: Array, *, return_lse: Literal[False] = ..., out: Optional[Array] = ...,
    scale: Optional[float] = ..., softcap: float = ..., causal: bool = ...,
    alignment: Alignment = ..., window: Window = ..., alibi_slopes: Optional[Any] = ...,
    bias: Optional[Any] = ..., mask: Optional[Any] = ..., sinks: Optional[Any] = ...,
    dropout_p: float = ..., dropout_seed: int = ..., dropout_offset: int = ...,
    dropout_rng: Optional[Any] = ..., cu_seqlens_q: Optional[Any] = ...,
    cu_seqlens_kv: Optional[Any] = ..., seqused_q: Optional[Any] = ...,
    seqused_kv: Optional[Any] = ..., max_seqlen_q: int = ..., max_seqlen_kv: int = ...,
    block_table: Optional[Any] = ..., backend: Backend = ..., deterministic: bool = ...,
    fixed_split: bool = ..., forbid_slower: bool = ..., kernel: Optional[str] = ...,
    num_threads: int = ...,
) -> Array: ...
@overload
def attention(
    q: Array, k: Array, v: Array, *, return_lse: Literal[True], out: Optional[Array] = ...,
    scale: Optional[float] = ..., softcap: float = ..., causal: bool = ...,
    alignment: Alignment = ..., window: Window = ..., alibi_slopes: Optional[Any] = ...,
    bias: Optional[Any] = ..., mask: Optional[Any] = ..., sinks: Optional[Any] = ...,
    dropout_p: float = ..., dropout_seed: int = ..., dropout_offset: int = ...,
    dropout_rng: Optional[Any] = ..., cu_seqlens_q: Optional[Any] = ...,
    cu_seqlens_kv: Optional[Any] = ..., seqused_q: Optional[Any] = ...,
    seqused_kv: Optional[Any] = ..., max_seqlen_q: int = ..., max_seqlen_kv: int = ...,
    block_table: Optional[Any] = ..., backend: Backend = ..., deterministic: bool = ...,
    fixed_split: bool = ..., forbid_slower: bool = ..., kernel: Optional[str] = ...,
    num_threads: int = ...,
) -> tuple[Array, Array]: ...

def attention_backward(
    d_o: Array, q: Array, k: Array, v: Array, o: Array, lse: Array, *,
    d_lse: Optional[Array] = ..., wants_d_bias: bool = ..., wants_d_sinks: bool = ...,
    **options: Any,  # those of attention
) -> dict[str, Array]: ...

def decode(
    q: Array, k_cache: Any, v_cache: Any, cache_lengths: Any,
    k_new: Optional[Array] = ..., v_new: Optional[Array] = ..., *, return_lse: bool = ...,
    out: Optional[Array] = ..., cache_batch_index: Optional[Any] = ...,
    cache_leftpad: Optional[Any] = ..., rotary_cos: Optional[Any] = ...,
    rotary_sin: Optional[Any] = ...,
    rotary_layout: Literal["interleaved", "half_split"] = ..., num_splits: int = ...,
    kv_format: KvFormat = ..., kv_layout: KvLayout = ..., k_scales: Optional[Any] = ...,
    v_scales: Optional[Any] = ..., head_dim_v: Optional[int] = ...,
    block_table: Optional[Any] = ...,
    **options: Any,  # the score and execution options of attention
) -> Any: ...  # o, or with return_lse (o, lse)

def combine(
    o_partial: Array, lse_partial: Array, *, sinks: Optional[Any] = ...,
    dtype: Optional[str] = ..., out: Optional[Array] = ...,
    **options: Any,  # the execution options of attention
) -> tuple[Array, Array]: ...

def quantize_kv(
    source: Array, kv_format: KvFormat = ..., *, groups: int = ..., kv_layout: KvLayout = ...,
    **options: Any,
) -> tuple[Array, Optional[Array]]: ...

def dropout_mask(
    shape: Sequence[int], dropout_p: float, *, seed: int = ..., offset: int = ...,
    out: Optional[Any] = ..., **options: Any,
) -> Any: ...

def explain(
    q: Array, k: Array, v: Array, *, backward: bool = ..., return_lse: bool = ..., **options: Any,
) -> str: ...

def tune(
    q: Array, k: Array, v: Array, *, backward: bool = ..., return_lse: bool = ...,
    dry_run: bool = ..., num_rounds: int = ..., slice_seconds: float = ..., **options: Any,
) -> list[dict[str, Any]]: ...

def tuned() -> list[dict[str, Any]]: ...
def clear_tuning() -> int: ...
def info() -> dict[str, Any]: ...
def check_device_errors(device_id: int = ...) -> dict[str, int]: ...
def version() -> str: ...
