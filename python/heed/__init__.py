"""heed: exact attention (FlashAttention) on CPUs and NVIDIA GPUs for NumPy, PyTorch, JAX and CuPy.

    o = heed.attention(q, k, v, causal=True)        # [batch, length, heads, head_dim]
    print(heed.explain(q, k, v, causal=True))       # which kernel runs, and why

Importing it imports no framework and loads nothing; the shared library opens at the first call.
"""

from heed.errors import (DeviceError, HeedError, InvalidArgumentError, OutOfMemoryError,
                         UnavailableError, UnsupportedError)
from heed.library import version
from heed.operations import (attention, attention_backward, check_device_errors, combine, decode,
                             dropout_mask, explain, info, quantize_kv)
from heed.tuning import clear_tuning, tune, tuned

__all__ = [
    "attention", "attention_backward", "check_device_errors", "clear_tuning", "combine", "decode",
    "dropout_mask", "explain", "info", "quantize_kv", "tune", "tuned", "version", "HeedError",
    "InvalidArgumentError", "UnsupportedError", "OutOfMemoryError", "DeviceError",
    "UnavailableError",
]
