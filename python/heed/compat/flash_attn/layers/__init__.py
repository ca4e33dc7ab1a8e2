"""flash_attn.layers, as far as heed has it."""
