"""The preset `hopper-backward-features` of bench/compare_gpu.py: what features of backward calls
cost.

heed alone: rates count visible pairs, and ratios are to heed's plain call of the same head dim and
length, timed in turns with the case. Hidden size 2048, 16k tokens, bf16.
"""

import ctypes as c
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gpu.cases import TOKENS
from gpu.clocks import SmClock
from gpu.features import (Feature, FeatureCase, measure_pairs, prepare, results_of,
                          time_burst)
from gpu.heed_library import Call, HeedError, abi

HEAD_DIMS, LENGTHS = (64, 128, 256), (1024, 4096, 16384)
MAX_CHECKED_LENGTH = 4096  # float64 scores of one head, five times
FIXED_ORDER_BAR = 1 / 1.25


@dataclass
class BackwardFeature(Feature):
    bar: float = 0.0
    d_bias: bool = False
    dropout: float = 0.0
    fixed_order: bool = False


FEATURES = [
    BackwardFeature("plain"), BackwardFeature("causal", causal=True),
    BackwardFeature("fixed order", FIXED_ORDER_BAR, fixed_order=True),
    BackwardFeature("fixed order causal", FIXED_ORDER_BAR, fixed_order=True, causal=True),
    BackwardFeature("window 256 each", window=(256, 256)),
    BackwardFeature("packed", packed=True), BackwardFeature("8 heads a KV head", group=8),
    BackwardFeature("softcap 30", softcap=30.0), BackwardFeature("alibi", alibi=True),
    BackwardFeature("bias", bias=True), BackwardFeature("bias with d_bias", bias=True, d_bias=True),
    BackwardFeature("mask", mask=True), BackwardFeature("dropout", dropout=0.1),
]


@dataclass
class BackwardFeatureCase(FeatureCase):
    @property
    def batch(self):
        return TOKENS // self.length

    @property
    def name(self):
        return f"{super().name} S{self.length}"

    @property
    def baseline(self):
        return f"{super().baseline} S{self.length}"

    @property
    def flops(self):
        return 10 * self.batch * self.heads * self.visible_pairs * self.head_dim


def backward_feature_cases():
    return [BackwardFeatureCase(head_dim, feature, length) for head_dim in HEAD_DIMS
            for length in LENGTHS for feature in FEATURES]


def make_tensors(torch, case):
    feature, length = case.feature, case.length
    new = lambda *shape: torch.randn(shape, device="cuda").bfloat16()
    rows = lambda heads: new(case.batch, length, heads, case.head_dim)
    kv_heads = case.heads // feature.group
    tensors = {"q": rows(case.heads), "d_o": rows(case.heads), "k": rows(kv_heads),
               "v": rows(kv_heads)}
    for name, like in (("o", "q"), ("dq", "q"), ("dk", "k"), ("dv", "v")):
        tensors[name] = torch.full_like(tensors[like], math.nan)
    tensors["lse"] = torch.full((case.batch, case.heads, length), math.nan, device="cuda")
    if feature.alibi:
        tensors["alibi_slopes"] = torch.tensor(
            [2.0 ** (-8.0 * (head + 1) / case.heads) for head in range(case.heads)], device="cuda")
    if feature.bias:
        tensors["bias"] = new(1, 1, length, length)
    if feature.d_bias:
        tensors["d_bias"] = torch.full_like(tensors["bias"], math.nan)
    if feature.mask:
        tensors["mask"] = torch.rand((1, 1, length, length), device="cuda") < 0.5
    if feature.packed:
        for name in ("q", "k", "v", "o", "d_o", "dq", "dk", "dv"):
            tensors[name] = tensors[name].flatten(0, 1)
        tensors["lse"] = torch.full((case.heads, TOKENS), math.nan, device="cuda")
        tensors["offsets"] = torch.arange(case.batch + 1, device="cuda", dtype=torch.int32) * length
    return tensors


class BackwardFeatureCall(Call):
    """op: of abi; both take the same tensors."""

    def __init__(self, heed, op, case, tensors):
        self.heed, self.op, self.keep = heed, op, [tensors]
        feature = case.feature
        self.score = abi.ScoreArgs(causal=int(feature.causal), softcap=feature.softcap,
                                   dropout_p=feature.dropout, dropout_seed=7)
        self.score.window_left, self.score.window_right = feature.window
        pointers = {name: self._tensor(tensor) for name, tensor in tensors.items()}
        for name in ("alibi_slopes", "bias", "mask"):
            if name in tensors:
                setattr(self.score, name, pointers[name])
        varlen = None
        if feature.packed:
            self.varlen = abi.VarlenArgs(
                cu_seqlens_q=pointers["offsets"], cu_seqlens_kv=pointers["offsets"],
                max_seqlen_q=case.length, max_seqlen_kv=case.length)
            varlen = c.pointer(self.varlen)
        self.exec = abi.ExecArgs(backend=abi.BACKENDS["cuda"],
                                 deterministic=int(feature.fixed_order))
        self.forward_args = abi.ForwardArgs(
            score=c.pointer(self.score), exec=c.pointer(self.exec), varlen=varlen,
            **{name: pointers[name] for name in ("q", "k", "v", "o", "lse")})
        self.args, self.function = self.forward_args, heed.library.heed_forward
        if op == abi.OP_BACKWARD:
            gradients = {name: pointers[name] for name in ("d_o", "dq", "dk", "dv", "d_bias")
                         if name in pointers}
            self.args = abi.BackwardArgs(forward=c.pointer(self.forward_args),
                                         exec=c.pointer(self.exec), **gradients)
            self.function = heed.library.heed_backward
        self._prepare(tensors["q"].device)


def hidden_pairs(torch, case, tensors):
    """Pairs of one head that are not seen."""
    feature = case.feature
    at = torch.arange(case.length, device="cuda")
    ahead = at[None, :] - at[:, None]
    left, right = feature.window
    if feature.causal:
        right = 0
    hidden = torch.zeros_like(ahead, dtype=torch.bool)
    if right >= 0:
        hidden |= ahead > right
    if left >= 0:
        hidden |= ahead < -left
    if feature.mask:
        hidden |= ~tensors["mask"][0, 0]
    return hidden


def relative_error(torch, case, tensors):
    """Largest of the gradients of the last head of the last sequence, against float64; None where
    nothing is compared. Gradients of K and V belong to it alone without groups."""
    feature, length = case.feature, case.length
    if length > MAX_CHECKED_LENGTH or feature.dropout:
        return None
    pick = lambda name: tensors[name].reshape(-1, *tensors[name].shape[-2:])[-length:, -1].double()
    q, k, v = (pick(name).requires_grad_() for name in ("q", "k", "v"))
    s = q @ k.T * case.head_dim**-0.5
    if feature.softcap:
        s = feature.softcap * torch.tanh(s / feature.softcap)
    if feature.bias:
        s = s + tensors["bias"][0, 0].double()
    if feature.alibi:
        at = torch.arange(length, device="cuda")
        s = s - tensors["alibi_slopes"][-1].double() * (at[None, :] - at[:, None]).abs()
    s = s.masked_fill(hidden_pairs(torch, case, tensors), -math.inf)
    o = s.softmax(-1) @ v
    expected = torch.autograd.grad(o, (q, k, v), pick("d_o"))
    names = ("dq", "dk", "dv") if feature.group == 1 else ("dq",)
    return max(((pick(name) - value).norm() / value.norm()).item()
               for name, value in zip(names, expected))


def measure_backward_features(torch, heed, options, record):
    """Each case in turns with its baseline, as in the preset hopper-features."""
    stream = torch.cuda.current_stream().cuda_stream
    clock = SmClock()
    cases = [case for case in backward_feature_cases()
             if options.filter in case.name or case.feature.name in ("plain", "causal")]
    compile_ahead(torch, heed, [case for case in cases if case.length == min(LENGTHS)])

    def run(case):
        tensors = make_tensors(torch, case)
        BackwardFeatureCall(heed, abi.OP_FORWARD, case, tensors)(stream)
        call = BackwardFeatureCall(heed, abi.OP_BACKWARD, case, tensors)
        call(stream)
        torch.cuda.synchronize()
        return call, relative_error(torch, case, tensors)

    for shape in dict.fromkeys((case.head_dim, case.length) for case in cases):
        calls, errors = prepare(
            (case for case in cases if (case.head_dim, case.length) == shape), run, record)

        def timed(name):
            call = calls[name][1]
            once = time_burst(torch, call, stream, 1, clock)
            num_calls = max(2, round(options.round_ms / once.ms))
            return lambda: time_burst(torch, call, stream, num_calls, clock)

        times = {name: measure_pairs(timed(case.baseline), timed(name), options.rounds)
                 for name, (case, _) in calls.items() if case.baseline in calls}
        record["cases"] += results_of(calls, times, errors)
        torch.cuda.empty_cache()


def compile_ahead(torch, heed, cases):
    """Kernels of the cases, which depend on features and head dims, at once. A case that fails says
    so when it is measured."""
    def compile_one(case):
        tensors = make_tensors(torch, case)
        for op in (abi.OP_FORWARD, abi.OP_BACKWARD):
            try:
                BackwardFeatureCall(heed, op, case, tensors)
            except HeedError:
                pass

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, cases))
