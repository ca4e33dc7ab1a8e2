"""The public names of FlashAttention-2."""

from pkgutil import extend_path

from heed.compat.flash_attn.flash_attn_interface import (
    flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func,
    flash_attn_varlen_func, flash_attn_varlen_kvpacked_func, flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache)

# Beside an installed flash_attn, what heed does not have is found there.
__path__ = extend_path(__path__, "flash_attn")

# The version whose behaviour is imitated.
__version__ = "2.8.3"

__all__ = [
    "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache",
]
