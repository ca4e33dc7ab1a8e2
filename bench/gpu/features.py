"""The preset `hopper-features` of bench/compare_gpu.py: what features of the forward pass cost.

heed alone: rates count visible pairs, and ratios are to heed's plain call of the same head dim, the
causal one for causal cases, measured in the same rounds. Hidden size 2048, B = 4, S = 4096.
"""

import ctypes as c
import math
import statistics
from dataclasses import dataclass

from gpu.cases import HIDDEN
from gpu.heed_library import Call, abi

BATCH, LENGTH = 4, 4096
FEATURE_BAR = 0.85
GROWTH_BITS = 20  # by which every block's scores exceed those of the block before, at least
BLOCK_KEYS = {64: 96, 128: 128}  # of the rows that run it, by head dim


@dataclass
class Feature:
    """What a case adds to a plain call. bar: least ratio to it; 0 = none."""
    name: str
    bar: float = FEATURE_BAR
    causal: bool = False
    dtype: str = "bfloat16"
    group: int = 1  # query heads of a KV head
    window: tuple = (-1, -1)
    softcap: float = 0.0
    alibi: bool = False
    bias: bool = False
    mask: bool = False  # half of all pairs are hidden, at random
    packed: bool = False
    hostile: bool = False


FEATURES = [
    Feature("plain", 0), Feature("causal", 0, causal=True),
    Feature("packed", 0.97, packed=True), Feature("packed causal", 0.97, packed=True, causal=True),
    Feature("fp16", 0.98, dtype="float16"),
    Feature("fp16 causal", 0.98, dtype="float16", causal=True),
    Feature("8 heads a KV head", 1.0, group=8),
    Feature("window 1024 left", window=(1024, 0)), Feature("window 512 each", window=(512, 512)),
    Feature("softcap 50", softcap=50.0), Feature("softcap 50 causal", softcap=50.0, causal=True),
    Feature("softcap 5", softcap=5.0),
    Feature("alibi", alibi=True), Feature("alibi causal", alibi=True, causal=True),
    Feature("bias", bias=True), Feature("bias causal", bias=True, causal=True),
    Feature("mask", mask=True), Feature("mask causal", mask=True, causal=True),
    Feature("hostile", 1 / 1.5, hostile=True),
]


@dataclass
class FeatureCase:
    head_dim: int
    feature: Feature
    length: int = LENGTH

    @property
    def heads(self):
        return HIDDEN // self.head_dim

    @property
    def name(self):
        return f"d{self.head_dim} {self.feature.name}"

    @property
    def baseline(self):
        return f"d{self.head_dim} {'causal' if self.feature.causal else 'plain'}"

    @property
    def visible_pairs(self):
        """Of one head and sequence, by position alone: a mask's pairs all count."""
        left, right = self.feature.window
        if self.feature.causal:
            right = 0
        last = self.length - 1
        ends = (min(i + right, last) if right >= 0 else last for i in range(self.length))
        begins = (max(i - left, 0) if left >= 0 else 0 for i in range(self.length))
        return sum(end + 1 - begin for begin, end in zip(begins, ends))

    @property
    def flops(self):
        return 4 * BATCH * self.heads * self.visible_pairs * self.head_dim


def feature_cases():
    return [FeatureCase(head_dim, feature) for head_dim in (64, 128) for feature in FEATURES]


def make_tensors(torch, case):
    feature = case.feature
    dtype = getattr(torch, feature.dtype)
    new = lambda *shape: torch.randn(shape, device="cuda")
    q = new(BATCH, LENGTH, case.heads, case.head_dim)
    k, v = (new(BATCH, LENGTH, case.heads // feature.group, case.head_dim) for _ in range(2))
    if feature.hostile:
        # One column decides. Blocks are taken from the last key to the first.
        step = (GROWTH_BITS + 4) * math.log(2.0) * case.head_dim**0.5 / 8.0
        from_end = torch.arange(LENGTH - 1, -1, -1, device="cuda")
        q[..., 0] = 8.0
        k[..., 0] = (from_end // BLOCK_KEYS[case.head_dim] * step)[None, :, None]
    tensors = {"q": q.to(dtype), "k": k.to(dtype), "v": v.to(dtype)}
    tensors["o"] = torch.full_like(tensors["q"], math.nan)
    tensors["lse"] = torch.full((BATCH, case.heads, LENGTH), math.nan, device="cuda")
    if feature.alibi:
        tensors["alibi_slopes"] = torch.tensor(
            [2.0 ** (-8.0 * (head + 1) / case.heads) for head in range(case.heads)], device="cuda")
    if feature.bias:
        tensors["bias"] = new(1, 1, LENGTH, LENGTH).to(dtype)
    if feature.mask:
        tensors["mask"] = torch.rand((1, 1, LENGTH, LENGTH), device="cuda") < 0.5
    return tensors


class FeatureCall(Call):
    def __init__(self, heed, case, tensors):
        self.heed, self.op, self.keep = heed, abi.OP_FORWARD, [tensors]
        feature = case.feature
        self.score = abi.ScoreArgs(causal=int(feature.causal), softcap=feature.softcap)
        self.score.window_left, self.score.window_right = feature.window
        for name in ("alibi_slopes", "bias", "mask"):
            if name in tensors:
                setattr(self.score, name, self._tensor(tensors[name]))
        self.exec = abi.ExecArgs(backend=abi.BACKENDS["cuda"])
        operands = {name: tensors[name] for name in ("q", "k", "v", "o", "lse")}
        varlen = None
        if feature.packed:
            operands, varlen = self._packed(tensors)
        self.args = abi.ForwardArgs(
            score=c.pointer(self.score), exec=c.pointer(self.exec), varlen=varlen,
            **{name: self._tensor(tensor) for name, tensor in operands.items()})
        self._prepare(tensors["q"].device)
        self.function = heed.library.heed_forward

    def _packed(self, tensors):
        """The same sequences one behind the other."""
        import torch
        offsets = torch.arange(BATCH + 1, device="cuda", dtype=torch.int32) * LENGTH
        operands = {name: tensors[name].flatten(0, 1) for name in ("q", "k", "v", "o")}
        lse = torch.full((operands["q"].shape[1], BATCH * LENGTH), math.nan, device="cuda")
        self.keep += [offsets, lse]
        self.varlen = abi.VarlenArgs(cu_seqlens_q=self._tensor(offsets),
                                     cu_seqlens_kv=self._tensor(offsets),
                                     max_seqlen_q=LENGTH, max_seqlen_kv=LENGTH)
        return dict(operands, lse=lse), c.pointer(self.varlen)


def relative_error(torch, case, tensors):
    """Of the last head of the last sequence, against float64."""
    feature = case.feature
    q, k, v = (tensors[name][-1, :, -1].double() for name in ("q", "k", "v"))
    s = q @ k.T * case.head_dim**-0.5
    if feature.softcap:
        s = feature.softcap * torch.tanh(s / feature.softcap)
    at = torch.arange(LENGTH, device="cuda")
    ahead = at[None, :] - at[:, None]
    if feature.bias:
        s += tensors["bias"][0, 0].double()
    if feature.alibi:
        s -= tensors["alibi_slopes"][-1].double() * ahead.abs()
    left, right = feature.window
    if feature.causal:
        right = 0
    if right >= 0:
        s = s.masked_fill(ahead > right, -math.inf)
    if left >= 0:
        s = s.masked_fill(ahead < -left, -math.inf)
    if feature.mask:
        s = s.masked_fill(~tensors["mask"][0, 0], -math.inf)
    expected = s.softmax(-1).nan_to_num(0.0) @ v  # rows without a key: 0
    actual = tensors["o"][-1, :, -1].double()
    return ((actual - expected).norm() / expected.norm()).item()


def time_ms(torch, call, stream, num_calls):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call(stream)
    begin.record()
    for _ in range(num_calls):
        call(stream)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / num_calls


def measure_features(torch, heed, options, record):
    """All cases of a head dim in the same rounds."""
    stream = torch.cuda.current_stream().cuda_stream
    cases = [case for case in feature_cases()
             if options.filter in case.name or case.feature.name in ("plain", "causal")]
    for head_dim in sorted({case.head_dim for case in cases}):
        calls, errors = {}, {}
        for case in (case for case in cases if case.head_dim == head_dim):
            try:
                tensors = make_tensors(torch, case)
                calls[case.name] = case, FeatureCall(heed, case, tensors)
                calls[case.name][1](stream)
                torch.cuda.synchronize()
                errors[case.name] = relative_error(torch, case, tensors)
            except Exception as reason:  # one case must not lose the others' numbers
                calls.pop(case.name, None)
                record["failed"].append({"case": case.name, "reason": str(reason)})
                print(f"{case.name}: FAILED: {reason}", flush=True)
        times = {name: [] for name in calls}
        num_calls = max(2, round(options.round_ms / 2))  # of 1 to 2 ms each
        for _ in range(options.rounds):
            for name, (_, call) in calls.items():
                times[name].append(time_ms(torch, call, stream, num_calls))
        record["cases"] += results_of(calls, times, errors)
        torch.cuda.empty_cache()


def results_of(calls, times, errors):
    tflops = {name: case.flops / statistics.median(times[name]) / 1e9
              for name, (case, _) in calls.items()}
    results = []
    for name, (case, call) in calls.items():
        ratio = tflops[name] / tflops[case.baseline] if case.baseline in tflops else None
        bar = case.feature.bar
        results.append({
            "case": name, "head_dim": case.head_dim, "baseline": case.baseline,
            "kernel": call.kernel_id, "relative_error": errors[name],
            "ms": {"median": statistics.median(times[name]), "min": min(times[name]),
                   "max": max(times[name])},
            "tflops": tflops[name], "ratio": ratio,
            "bar": {"ratio": bar, "reached": ratio >= bar} if bar and ratio else None})
        print_feature(results[-1])
    return results


def print_feature(result):
    bar, error = result["bar"], result["relative_error"]
    verdict = "" if not bar else f"  bar {bar['ratio']:.2f} " + (
        "reached" if bar["reached"] else "MISSED")
    ratio = "-" if result["ratio"] is None else f"{result['ratio']:.2f}"
    print(f"{result['case']:28s} {result['tflops']:4.0f} TFLOP/s  {ratio} of {result['baseline']}  "
          f"err {'-' if error is None else format(error, '.1e')}  {result['kernel']}{verdict}",
          flush=True)
