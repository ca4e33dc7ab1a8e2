"""What heed raises. Every message is the library's own: it names argument, rule and value."""

from heed import abi


class HeedError(RuntimeError):
    """A call failed. `status` is the name of the C status, such as "HEED_DEVICE_ERROR"."""

    status = "HEED_INTERNAL"


class InvalidArgumentError(HeedError, ValueError):
    """No device could run this call: a shape, dtype, stride or option is wrong."""

    status = "HEED_INVALID_ARGUMENT"


class UnsupportedError(HeedError, NotImplementedError):
    """A legal call without a kernel here; the message lists the nearest kernels."""

    status = "HEED_UNSUPPORTED"


class OutOfMemoryError(HeedError, MemoryError):
    status = "HEED_OUT_OF_MEMORY"


class DeviceError(HeedError):
    """The device or its driver reported an error."""

    status = "HEED_DEVICE_ERROR"


class UnavailableError(HeedError):
    """The backend cannot load here; the message says why."""

    status = "HEED_UNAVAILABLE"


_CLASS_OF_STATUS = {
    abi.INVALID_ARGUMENT: InvalidArgumentError, abi.UNSUPPORTED: UnsupportedError,
    abi.OUT_OF_MEMORY: OutOfMemoryError, abi.DEVICE_ERROR: DeviceError,
    abi.UNAVAILABLE: UnavailableError,
}


def error_of(status, message):
    """The exception for a C status other than HEED_OK."""
    return _CLASS_OF_STATUS.get(status, HeedError)(message)
