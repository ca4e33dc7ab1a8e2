"""Finds and opens the shared library, once per process, when it is first needed."""

import ctypes as c
import functools
import os
import pathlib

from heed import abi
from heed.errors import UnavailableError, error_of

LIBRARY_NAME = "libheed.so.0"

_FUNCTIONS = {
    "heed_forward": abi.ForwardArgs, "heed_backward": abi.BackwardArgs,
    "heed_decode": abi.DecodeArgs, "heed_combine": abi.CombineArgs,
    "heed_quantize_kv": abi.QuantizeKvArgs, "heed_dropout_mask": abi.DropoutMaskArgs,
}


def library_path():
    """HEED_LIBRARY if set, else the library inside the package, else the one beside a source tree's
    release build; without any of them the name alone, for the system's search."""
    named = os.environ.get("HEED_LIBRARY")
    if named:
        return named
    here = pathlib.Path(__file__).resolve().parent
    for path in (here / LIBRARY_NAME, here.parents[1] / "build/release/src" / LIBRARY_NAME):
        if path.exists():
            return str(path)
    return LIBRARY_NAME


@functools.lru_cache(maxsize=None)
def load():
    """The opened library, with argument types set."""
    path = library_path()
    try:
        library = c.CDLL(path)
    except OSError as error:
        raise UnavailableError(
            f"the heed library did not load from {path!r}: {error}; set HEED_LIBRARY to its path"
        ) from error
    library.heed_last_error.restype = c.c_char_p
    library.heed_version.restype = c.c_char_p
    for name, struct in _FUNCTIONS.items():
        getattr(library, name).argtypes = [c.POINTER(struct)]
    library.heed_plan.argtypes = [c.c_int, c.c_void_p, c.POINTER(abi.PlanInfo)]
    library.heed_prepare.argtypes = [c.c_int, c.c_void_p]
    library.heed_explain.argtypes = [c.c_int, c.c_void_p, c.c_char_p, c.c_size_t,
                                     c.POINTER(c.c_size_t)]
    library.heed_tune.argtypes = [c.c_int, c.c_void_p, c.POINTER(abi.TuneOptions)]
    library.heed_tune_describe.argtypes = [c.c_int, c.c_char_p, c.c_size_t, c.POINTER(c.c_size_t)]
    library.heed_tune_clear.argtypes = [c.POINTER(c.c_int64)]
    library.heed_info.argtypes = [c.c_int, c.c_char_p, c.c_size_t, c.POINTER(c.c_size_t)]
    library.heed_check_device_errors.argtypes = [abi.Device, c.POINTER(abi.DeviceErrors)]
    return library


def check(status):
    """Raises what the last call of this thread reported, unless it succeeded."""
    if status != abi.OK:
        raise error_of(status, load().heed_last_error().decode())


def read_text(function, *arguments):
    """Text of a heed function whose last three parameters are buffer, capacity and needed bytes."""
    needed = c.c_size_t()
    check(function(*arguments, None, 0, c.byref(needed)))
    buffer = c.create_string_buffer(needed.value)
    check(function(*arguments, buffer, needed, c.byref(needed)))
    return buffer.value.decode()


def version():
    return load().heed_version().decode()
