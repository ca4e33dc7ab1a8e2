"""The preset `hopper-features` of bench/compare_gpu.py: what features of the forward pass cost.

heed alone: rates count visible pairs, and ratios are to heed's plain call of the same head dim, the
causal one for causal cases. A round times both, one directly behind the other, so that both run at
the temperature and under the power limit of the same moment; the ratio is the median over rounds of
each round's own. Hidden size 2048, B = 4, S = 4096.
"""

import ctypes as c
import math
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gpu.cases import HIDDEN
from gpu.clocks import SmClock
from gpu.heed_library import Call, HeedError, abi

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


@dataclass
class Burst:
    """Some calls one behind the other: the time of one, and the multiprocessors' clock."""
    ms: float
    mhz: int | None = None


def time_burst(torch, call, stream, num_calls, clock):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call(stream)
    begin.record()
    for _ in range(num_calls):
        call(stream)
    end.record()
    mhz = clock.mhz()  # the calls have only been queued so far
    end.synchronize()
    return Burst(begin.elapsed_time(end) / num_calls, mhz)


def measure_pairs(base, other, num_rounds):
    """[(burst of base, burst of other)]: taken in turns, either one first. base, other: functions
    that time a burst."""
    base(), other()
    pairs = []
    for i in range(num_rounds):
        if i % 2 == 0:
            pairs.append((base(), other()))
        else:
            second = other()
            pairs.append((base(), second))
    return pairs


def prepare(cases, run, record):
    """{name: (case, call)} and {name: error} of those that run; run(case): (call, error)."""
    calls, errors = {}, {}
    for case in cases:
        try:
            call, errors[case.name] = run(case)
            calls[case.name] = case, call
        except Exception as reason:  # one case must not lose the others' numbers
            record["failed"].append({"case": case.name, "reason": str(reason)})
            print(f"{case.name}: FAILED: {reason}", flush=True)
    return calls, errors


def compile_ahead(torch, heed, cases):
    """Kernels of all cases at once. A case that fails says so when it is measured."""
    def compile_one(case):
        try:
            FeatureCall(heed, case, make_tensors(torch, case))
        except HeedError:
            pass

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, cases))
    torch.cuda.empty_cache()


def measure_features(torch, heed, options, record):
    stream = torch.cuda.current_stream().cuda_stream
    clock = SmClock()
    cases = [case for case in feature_cases()
             if options.filter in case.name or case.name == case.baseline]
    compile_ahead(torch, heed, cases)
    num_calls = max(2, round(options.round_ms / 2))  # of 1 to 2 ms each

    def run(case):
        tensors = make_tensors(torch, case)
        call = FeatureCall(heed, case, tensors)
        call(stream)
        torch.cuda.synchronize()
        return call, relative_error(torch, case, tensors)

    for head_dim in sorted({case.head_dim for case in cases}):
        calls, errors = prepare((case for case in cases if case.head_dim == head_dim), run, record)
        timed = {name: lambda call=call: time_burst(torch, call, stream, num_calls, clock)
                 for name, (_, call) in calls.items()}
        pairs = {name: measure_pairs(timed[case.baseline], timed[name], options.rounds)
                 for name, (case, _) in calls.items() if case.baseline in timed}
        record["cases"] += results_of(calls, pairs, errors)
        torch.cuda.empty_cache()


def range_of(samples):
    known = [sample for sample in samples if sample is not None]
    if not known:
        return None
    return {"median": statistics.median(known), "min": min(known), "max": max(known)}


def results_of(calls, pairs, errors):
    """pairs: as measure_pairs returns them, by case."""
    results = []
    for name, of_case in pairs.items():
        case, call = calls[name]
        base_case = calls[case.baseline][0]
        work = case.flops / base_case.flops
        ratio = statistics.median(base.ms / other.ms * work for base, other in of_case)
        bar = case.feature.bar
        results.append({
            "case": name, "head_dim": case.head_dim, "baseline": case.baseline,
            "kernel": call.kernel_id, "relative_error": errors[name],
            "ms": range_of([other.ms for _, other in of_case]),
            "baseline_ms": range_of([base.ms for base, _ in of_case]),
            "sm_mhz": range_of([other.mhz for _, other in of_case]),
            "baseline_sm_mhz": range_of([base.mhz for base, _ in of_case]),
            "tflops": case.flops / statistics.median(other.ms for _, other in of_case) / 1e9,
            "ratio": ratio,
            "bar": {"ratio": bar, "reached": ratio >= bar} if bar else None})
        print_feature(results[-1])
    return results


def print_feature(result):
    bar, error = result["bar"], result["relative_error"]
    verdict = "" if not bar else f"  bar {bar['ratio']:.2f} " + (
        "reached" if bar["reached"] else "MISSED")
    clocks = [result[of] and result[of]["median"] for of in ("sm_mhz", "baseline_sm_mhz")]
    at = "" if None in clocks else f"  at {clocks[0]:.0f} and {clocks[1]:.0f} MHz"
    error = "-" if error is None else format(error, ".1e")  # long cases are not checked
    print(f"{result['case']:28s} {result['tflops']:4.0f} TFLOP/s  {result['ratio']:.3f} of "
          f"{result['baseline']}{at}  err {error}  {result['kernel']}{verdict}", flush=True)
