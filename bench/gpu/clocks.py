"""The clock of a GPU's multiprocessors, by the driver's management library."""

import ctypes as c

NVML_CLOCK_SM = 1


class SmClock:
    """Of the first GPU. Where the library is missing, mhz() is None."""

    def __init__(self):
        self._device = c.c_void_p()
        try:
            self._library = c.CDLL("libnvidia-ml.so.1")
        except OSError:
            self._library = None
            return
        if (self._library.nvmlInit_v2() != 0 or
                self._library.nvmlDeviceGetHandleByIndex_v2(0, c.byref(self._device)) != 0):
            self._library = None

    def mhz(self):
        if self._library is None:
            return None
        value = c.c_uint()
        status = self._library.nvmlDeviceGetClockInfo(self._device, NVML_CLOCK_SM, c.byref(value))
        return value.value if status == 0 else None
