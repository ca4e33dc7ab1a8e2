"""Reads weights and the tokenizer of a llama-architecture model from a GGUF file."""

from dataclasses import dataclass

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers


@dataclass(frozen=True)
class Shape:
    """Sizes of the model, in elements, and its two numeric constants."""

    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    rms_epsilon: float
    rope_base: float


class GgufFile:
    """One opened GGUF file; weights are dequantised when they are asked for."""

    def __init__(self, path):
        self._reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def field(self, name):
        """Value of one metadata field."""
        return self._reader.fields[name].contents()

    def weight(self, name):
        """Weight `name` as fp32, shape [out_features, in_features] or [features]."""
        tensor = self._tensors[name]
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    def shape(self):
        """Sizes from the metadata; refuses other architectures."""
        if self.field("general.architecture") != "llama":
            raise ValueError("only the llama architecture is understood")
        return Shape(
            num_layers=self.field("llama.block_count"),
            num_q_heads=self.field("llama.attention.head_count"),
            num_kv_heads=self.field("llama.attention.head_count_kv"),
            head_dim=self.field("llama.rope.dimension_count"),
            rms_epsilon=self.field("llama.attention.layer_norm_rms_epsilon"),
            rope_base=self.field("llama.rope.freq_base"),
        )

    def tokenizer(self):
        """Byte-level BPE; the "smollm" rule splits numbers into single digits first."""
        if self.field("tokenizer.ggml.pre") != "smollm":
            raise ValueError("only the smollm pre-tokenizer is understood")
        vocab = {token: i for i, token in enumerate(self.field("tokenizer.ggml.tokens"))}
        merges = [tuple(pair.split(" ")) for pair in self.field("tokenizer.ggml.merges")]
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer
