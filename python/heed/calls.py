"""Python values -> argument structures of the C library. A `Builder` lives for one call and keeps
everything alive that the structures point to."""

import ctypes as c
import operator

from heed import abi, arrays
from heed.library import check, load


def choice(name, value, choices):
    """The C value of a named choice, such as alignment="top_left"."""
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise ValueError(f"{name} = {value!r}: must be one of {', '.join(choices)}") from None


def integer(name, value, low=-2**63, high=2**63 - 1):
    """value as an int. TypeError for what is not one, ValueError outside [low, high]."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r}: must be an integer") from None
    if not low <= number <= high:
        raise ValueError(f"{name} = {number}: must be in [{low}, {high}]")
    return number


def real(name, value):
    """value as a float. TypeError for what is no number."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} = {value!r}: must be a number") from None
    except OverflowError:
        raise ValueError(f"{name}: must be within the range of a double") from None


def flag(name, value):
    """value as 0 or 1. TypeError for what is neither a bool nor 0 or 1."""
    try:
        if operator.index(value) in (0, 1):
            return int(value)
    except TypeError:
        if type(value).__name__ in ("bool", "bool_"):  # numpy.bool_ has no __index__
            return int(value)
    raise TypeError(f"{name} = {value!r}: must be True or False")


def window_bounds(window):
    """(left, right) as int64, None and -1 meaning no bound. ValueError below -1."""
    try:
        left, right = window
    except (TypeError, ValueError):
        raise ValueError(f"window = {window!r}: must be a pair (left, right)") from None
    sides = tuple(-1 if side is None else integer("window", side) for side in (left, right))
    if min(sides) < -1:
        raise ValueError(f"window = {window!r}: each side must be -1 (no bound) or not negative")
    return sides


def planned_workspace_bytes(op, args):
    """What the kernel chosen for these arguments takes."""
    plan = abi.PlanInfo()
    check(load().heed_plan(op, c.byref(args), c.byref(plan)))
    return plan.workspace_bytes


class Builder:
    """Builds the structures of one call. `library`: of the first array, and of all others."""

    def __init__(self, array, name="q"):
        self.library = arrays.library_of(array, name)
        self.first = array
        self.stream = self.library.stream(array)
        self._keep, self._arrays = [], []
        self.named = {}  # argument -> its heed_tensor_t

    def tensor(self, array, name):
        """heed_tensor_t* of an array, NULL for None."""
        if array is None:
            return None
        try:
            library = arrays.library_of(array)
            if not arrays.may_mix(self.library, library):
                raise TypeError(f"an array of {type(array).__module__}: all arrays of a call must "
                                "be of one library")
            view = library.view(array)
            code, bits = arrays.code_and_bits(view.dtype)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None
        ndim = len(view.shape)
        shape = (c.c_int64 * ndim)(*view.shape)
        # Strides of an empty array may be anything.
        strides = None if 0 in view.shape else (c.c_int64 * ndim)(*view.strides)
        tensor = abi.Tensor(data=view.data, device=abi.Device(view.device_type, view.device_id),
                            ndim=ndim, dtype=abi.DType(code, bits, 1), shape=shape, strides=strides)
        self.named[name] = tensor
        self._arrays.append(array)
        self._keep += [shape, strides, tensor]
        return c.pointer(tensor)

    def output(self, array, name):
        """tensor() of an array that the call writes. ValueError where it cannot be written."""
        if array is not None and not arrays.library_of(array).is_writable(array):
            raise ValueError(f"{name}: read-only, and the call writes to it")
        return self.tensor(array, name)

    def forget_arrays(self):
        """For structures that outlive the call: its arrays are not kept alive any more."""
        self._arrays.clear()
        self.first = None

    def give_workspace(self, op, args, exec_args):
        """A CUDA graph that is being recorded owns all its memory: the call's workspace becomes an
        array of the caller's library."""
        if not self.library.is_capturing(self.first):
            return
        num_bytes = planned_workspace_bytes(op, args)
        if num_bytes:
            workspace = self.library.empty((num_bytes,), "uint8", self.first)
            self._arrays.append(workspace)
            exec_args.contents.workspace = self.library.view(workspace).data
            exec_args.contents.workspace_bytes = num_bytes

    def score(self, *, scale=None, softcap=0.0, causal=False, alignment="bottom_right",
              window=(-1, -1), alibi_slopes=None, bias=None, mask=None, sinks=None, dropout_p=0.0,
              dropout_seed=0, dropout_offset=0, dropout_rng=None):
        left, right = window_bounds(window)
        return c.pointer(abi.ScoreArgs(
            scale=None if scale is None else c.pointer(c.c_double(real("scale", scale))),
            softcap=real("softcap", softcap), causal=flag("causal", causal),
            alignment=choice("alignment", alignment, abi.ALIGNMENTS), window_left=left,
            window_right=right,
            alibi_slopes=self.tensor(alibi_slopes, "alibi_slopes"), bias=self.tensor(bias, "bias"),
            mask=self.tensor(mask, "mask"), sinks=self.tensor(sinks, "sinks"),
            dropout_p=real("dropout_p", dropout_p),
            dropout_seed=integer("dropout_seed", dropout_seed, 0, 2**64 - 1),
            dropout_offset=integer("dropout_offset", dropout_offset, 0, 2**64 - 1),
            dropout_rng=self.tensor(dropout_rng, "dropout_rng")))

    def varlen(self, *, cu_seqlens_q=None, cu_seqlens_kv=None, seqused_q=None, seqused_kv=None,
               max_seqlen_q=0, max_seqlen_kv=0):
        if cu_seqlens_q is None and cu_seqlens_kv is None and seqused_q is None and (
                seqused_kv is None):
            if max_seqlen_q or max_seqlen_kv:
                raise ValueError("max_seqlen_q and max_seqlen_kv: need cu_seqlens or seqused")
            return None
        return c.pointer(abi.VarlenArgs(
            cu_seqlens_q=self.tensor(cu_seqlens_q, "cu_seqlens_q"),
            cu_seqlens_kv=self.tensor(cu_seqlens_kv, "cu_seqlens_kv"),
            seqused_q=self.tensor(seqused_q, "seqused_q"),
            seqused_kv=self.tensor(seqused_kv, "seqused_kv"),
            max_seqlen_q=integer("max_seqlen_q", max_seqlen_q),
            max_seqlen_kv=integer("max_seqlen_kv", max_seqlen_kv)))

    def paging(self, block_table):
        if block_table is None:
            return None
        return c.pointer(abi.PagingArgs(block_table=self.tensor(block_table, "block_table")))

    def exec(self, *, backend="auto", deterministic=False, fixed_split=False, forbid_slower=False,
             kernel=None, num_threads=0):
        if not isinstance(kernel, (str, type(None))):
            raise TypeError(f"kernel = {kernel!r}: must be a string")
        if kernel is not None and "\0" in kernel:
            raise ValueError(f"kernel = {kernel!r}: must not hold a NUL character")
        return c.pointer(abi.ExecArgs(
            backend=choice("backend", backend, abi.BACKENDS),
            deterministic=flag("deterministic", deterministic),
            fixed_split=flag("fixed_split", fixed_split),
            forbid_slower=flag("forbid_slower", forbid_slower),
            kernel=None if kernel is None else kernel.encode(), stream=self.stream,
            num_threads=integer("num_threads", num_threads, -2**31, 2**31 - 1)))
