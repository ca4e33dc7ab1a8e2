"""flash_attn_3.flash_attn_interface: the functions of flash_attn_interface."""

from heed.compat.flash_attn_interface import (
    flash_attn_combine, flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func,
    flash_attn_with_kvcache, get_scheduler_metadata)

__all__ = [
    "flash_attn_combine", "flash_attn_func", "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func", "flash_attn_with_kvcache", "get_scheduler_metadata",
]
