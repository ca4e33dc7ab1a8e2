"""flash_attn_3, the package that FlashAttention-3's wheels install beside flash_attn_interface."""

from heed.compat.flash_attn_3 import flash_attn_interface

__all__ = ["flash_attn_interface"]
