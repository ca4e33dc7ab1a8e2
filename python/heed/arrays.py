"""Arrays of NumPy, PyTorch, JAX and CuPy as memory that the C library can address.

No framework is imported here unless the caller has passed one of its arrays.
"""

import sys
from typing import NamedTuple

from heed import abi

# name -> (code, bits) of DLPack
_DTYPES = {
    "float16": (abi.DTYPE_FLOAT, 16), "float32": (abi.DTYPE_FLOAT, 32),
    "float64": (abi.DTYPE_FLOAT, 64), "bfloat16": (abi.DTYPE_BFLOAT, 16),
    "float8_e4m3fn": (abi.DTYPE_FLOAT8_E4M3FN, 8), "bool": (abi.DTYPE_BOOL, 8),
    "int8": (abi.DTYPE_INT, 8), "int32": (abi.DTYPE_INT, 32), "int64": (abi.DTYPE_INT, 64),
    "uint8": (abi.DTYPE_UINT, 8), "uint64": (abi.DTYPE_UINT, 64),
}


class View(NamedTuple):
    """Where an array lies. strides count elements."""

    data: int
    device_type: int
    device_id: int
    dtype: str
    shape: tuple
    strides: tuple


def code_and_bits(dtype):
    """DLPack's code and bits of a dtype name. TypeError for dtypes that heed never takes."""
    try:
        return _DTYPES[dtype]
    except KeyError:
        raise TypeError(f"dtype {dtype}: heed takes {', '.join(_DTYPES)}") from None


def _element_strides(byte_strides, itemsize):
    if any(stride % itemsize for stride in byte_strides):
        raise ValueError(f"strides of {tuple(byte_strides)} bytes: must be multiples of the "
                         f"element size, {itemsize} bytes")
    return tuple(stride // itemsize for stride in byte_strides)


class NumpyArrays:
    """numpy.ndarray; bfloat16 and float8 as the ml_dtypes package defines them."""

    def view(self, array):
        if not array.dtype.isnative:
            raise TypeError(f"dtype {array.dtype.str}: must be in the byte order of this machine")
        return View(array.ctypes.data, abi.DEVICE_CPU, 0, array.dtype.name, array.shape,
                    _element_strides(array.strides, array.itemsize))

    def is_writable(self, array):
        return array.flags.writeable

    def empty(self, shape, dtype, like):
        import numpy
        return numpy.empty(shape, self.dtype(dtype) if isinstance(dtype, str) else dtype)

    def dtype(self, name):
        import numpy
        if name in ("bfloat16", "float8_e4m3fn"):
            import ml_dtypes
            return numpy.dtype(getattr(ml_dtypes, name))
        return numpy.dtype(name)

    def contiguous_copy(self, array):
        import numpy
        return numpy.ascontiguousarray(array)

    def stream(self, array):
        return None

    def is_capturing(self, array):
        """Whether the stream records a CUDA graph."""
        return False

    def result(self, array):
        return array


def _strided():
    import torch
    return torch.strided


class TorchArrays:
    """torch.Tensor on the CPU or on a CUDA device, on the current stream of that device."""

    def view(self, array):
        device = array.device
        if device.type not in ("cpu", "cuda"):
            raise TypeError(f"a tensor on {device}: heed takes tensors on cpu and cuda")
        if array.layout is not _strided():
            raise TypeError(f"a tensor of layout {array.layout}: must be strided")
        if array.is_neg() or array.is_conj():
            raise ValueError("a lazily negated or conjugated view: resolve_neg() it first")
        is_cuda = device.type == "cuda"
        return View(array.data_ptr(), abi.DEVICE_CUDA if is_cuda else abi.DEVICE_CPU,
                    device.index if is_cuda else 0, str(array.dtype)[6:], tuple(array.shape),
                    array.stride())

    def empty(self, shape, dtype, like):
        import torch
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)

    def contiguous_copy(self, array):
        return array.contiguous()

    def stream(self, array):
        if array.device.type != "cuda":
            return None
        import torch
        return torch.cuda.current_stream(array.device).cuda_stream

    def is_capturing(self, array):
        import torch
        return array.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def result(self, array):
        return array

    def is_writable(self, array):
        return True


class CupyArrays:
    """cupy.ndarray, on CuPy's current stream."""

    def view(self, array):
        return View(array.data.ptr, abi.DEVICE_CUDA, array.device.id, array.dtype.name, array.shape,
                    _element_strides(array.strides, array.itemsize))

    def empty(self, shape, dtype, like):
        import cupy
        with like.device:
            return cupy.empty(shape, dtype)

    def contiguous_copy(self, array):
        import cupy
        return cupy.ascontiguousarray(array)

    def stream(self, array):
        import cupy
        return cupy.cuda.get_current_stream(array.device.id).ptr

    def is_capturing(self, array):
        import cupy
        return cupy.cuda.get_current_stream(array.device.id).is_capturing()

    def result(self, array):
        return array

    def is_writable(self, array):
        return True


class JaxArrays(NumpyArrays):
    """Concrete jax.Array on the CPU: read in place, results are new arrays. Traced values go
    through heed.jax."""

    def view(self, array):
        import jax
        import numpy
        if isinstance(array, numpy.ndarray):  # a result that is not one of JAX's yet
            return super().view(array)
        if isinstance(array, jax.core.Tracer):
            raise TypeError("a traced JAX value: use heed.jax.attention under jax.jit and jax.grad")
        platform = next(iter(array.devices())).platform
        if platform != "cpu":
            raise TypeError(f"a JAX array on {platform}: heed takes JAX arrays on cpu")
        return super().view(numpy.asarray(array))

    def contiguous_copy(self, array):
        import numpy
        return numpy.ascontiguousarray(numpy.asarray(array))

    def result(self, array):
        import jax
        return jax.numpy.asarray(array)

    def is_writable(self, array):
        return False  # JAX arrays never change


_JAX = JaxArrays()

# Module of the array's type -> its library. Found by name, so that nothing is imported to look.
_LIBRARIES = {"numpy": NumpyArrays(), "torch": TorchArrays(), "cupy": CupyArrays(),
              "jax": _JAX, "jaxlib": _JAX}
_LIBRARY_OF_TYPE = {}


def library_of(array, name=None):
    """The library an array belongs to. TypeError, which names the argument, for anything else."""
    try:
        return _find_library(array)
    except TypeError as error:
        raise TypeError(f"{name}: {error}" if name else str(error)) from None


def _find_library(array):
    kind = type(array)
    library = _LIBRARY_OF_TYPE.get(kind)
    if library is None:
        for base in kind.__mro__:
            if base.__module__.startswith("numpy.ma"):
                raise TypeError("a masked array: heed would not see its mask; pass it as mask")
            library = _LIBRARIES.get(base.__module__.partition(".")[0])
            if library is not None:
                break
        else:
            raise TypeError(f"an argument of type {kind.__module__}.{kind.__qualname__}: heed "
                            "takes arrays of numpy, torch, jax and cupy")
        _LIBRARY_OF_TYPE[kind] = library
    return library


def may_mix(library, other):
    """Whether arrays of `other` may accompany those of `library`: only results of JAX calls, which
    are NumPy's until they are returned."""
    return other is library or (library is _JAX and other is _LIBRARIES["numpy"])


def is_torch(array):
    """Whether array is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)
