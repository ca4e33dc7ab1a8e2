"""The forward pass of a llama-architecture model in plain NumPy, written to be read.

Symbols: S tokens, E embedding features, F feed-forward features, Hq / Hkv query and key-value
heads, D head dim, V vocabulary.
"""

import numpy as np


def rms_norm(x, weight, epsilon):
    """x [S,E] divided by its root mean square per row, times weight [E]."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rotate(x, base):
    """Rotary embedding of x [S,H,D]: pair (2i, 2i+1) of token t turns by t * base^(-2i/D).

    GGUF stores the q and k weights of llama models permuted for interleaved pairs.
    """
    num_tokens, _, head_dim = x.shape
    frequency = base ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = np.arange(num_tokens)[:, None, None] * frequency
    cos, sin = np.cos(angle), np.sin(angle)
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return rotated.reshape(x.shape).astype(np.float32)


def causal_attention(q, k, v):
    """Causal softmax(q k^T / sqrt(D)) v in double precision, scores materialised.

    Shapes: q [S,Hq,D], k and v [S,Hkv,D]; returns o [S,Hq,D] and lse [Hq,S] (natural log).
    """
    num_tokens, num_q_heads, head_dim = q.shape
    group = num_q_heads // k.shape[1]
    q, k, v = (x.astype(np.float64).transpose(1, 0, 2) for x in (q, k, v))
    k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(head_dim)
    scores[:, np.triu(np.ones((num_tokens, num_tokens), bool), k=1)] = -np.inf
    row_max = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - row_max)
    row_sum = weights.sum(axis=-1, keepdims=True)
    o = (weights / row_sum) @ v
    lse = (row_max + np.log(row_sum))[..., 0]
    return o.transpose(1, 0, 2), lse


def swiglu(x, gate, up, down):
    """Feed-forward of x [S,E] with weights gate, up [F,E] and down [E,F]."""
    gated = x @ gate.T
    return (gated / (1 + np.exp(-gated)) * (x @ up.T)) @ down.T


class Llama:
    """Runs the model of a GgufFile. q, k and v are rounded to fp16 before attention, as a 16-bit
    KV cache does, so that fp16 copies of them are exactly what the attention saw."""

    def __init__(self, file):
        self._file = file
        self._shape = file.shape()
        self._embedding = file.weight("token_embd.weight")  # [V,E], also the output projection
        self._layers = [self._load_layer(i) for i in range(self._shape.num_layers)]
        self._output_norm = file.weight("output_norm.weight")

    def _load_layer(self, layer):
        names = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output")
        names += ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
        return {name: self._file.weight(f"blk.{layer}.{name}.weight") for name in names}

    def _project_heads(self, x, weight):
        """x [S,E] times weight [H*D,E], as [S,H,D]."""
        return (x @ weight.T).reshape(len(x), -1, self._shape.head_dim)

    def _attention_block(self, x, weights):
        """Attention of one layer on x [S,E]: its output [S,E] and {q, k, v, o, lse}."""
        normed = rms_norm(x, weights["attn_norm"], self._shape.rms_epsilon)
        q = rotate(self._project_heads(normed, weights["attn_q"]), self._shape.rope_base)
        k = rotate(self._project_heads(normed, weights["attn_k"]), self._shape.rope_base)
        v = self._project_heads(normed, weights["attn_v"])
        q, k, v = (tensor.astype(np.float16) for tensor in (q, k, v))
        o, lse = causal_attention(q, k, v)
        output = o.reshape(len(x), -1).astype(np.float32) @ weights["attn_output"].T
        return output, {"q": q, "k": k, "v": v, "o": o, "lse": lse}

    def forward(self, tokens):
        """Logits [S,V] for tokens [S], and for each layer its {q, k, v, o, lse}."""
        x = self._embedding[tokens]
        attention = []
        for weights in self._layers:
            output, tensors = self._attention_block(x, weights)
            attention.append(tensors)
            x = x + output
            normed = rms_norm(x, weights["ffn_norm"], self._shape.rms_epsilon)
            x = x + swiglu(normed, weights["ffn_gate"], weights["ffn_up"], weights["ffn_down"])
        normed = rms_norm(x, self._output_norm, self._shape.rms_epsilon)
        return normed @ self._embedding.T, attention


def perplexity(logits, tokens):
    """exp of the mean negative log-likelihood of tokens[1:] under logits [S,V] of tokens [S]."""
    logits = logits[:-1].astype(np.float64)
    row_max = logits.max(axis=-1)
    log_sum = row_max + np.log(np.exp(logits - row_max[:, None]).sum(axis=-1))
    return float(np.exp(np.mean(log_sum - logits[np.arange(len(logits)), tokens[1:]])))


def continue_greedily(model, tokens, num_new_tokens):
    """The num_new_tokens most likely tokens after `tokens`, each chosen given the ones before."""
    tokens = list(tokens)
    for _ in range(num_new_tokens):
        logits, _ = model.forward(tokens)
        tokens.append(int(logits[-1].argmax()))
    return tokens[-num_new_tokens:]
