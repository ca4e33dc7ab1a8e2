"""What bench/compare_gpu.py measures: cases, presets, and the bars that they should reach."""

from dataclasses import dataclass, field

HIDDEN, TOKENS = 2048, 16384
PRESETS = ["sm80", "hopper-forward", "hopper-backward", "hopper-features",
           "hopper-backward-features", "forward", "backward", "fp32", "latency", "decode", "smoke"]
FAMILY_OF_PRESET = {"sm80": "sm80"}  # others leave the choice of rows to the planner
PEERS_OF_PRESET = {"sm80": "flash", "hopper-forward": "cudnn", "hopper-backward": "cudnn"}


@dataclass
class Case:
    op: str  # forward or backward
    dtype: str
    head_dim: int
    length: int
    causal: bool
    bar: dict = field(default_factory=dict)  # {"peer": name, "ratio": least ratio}; empty = none

    @property
    def batch(self):
        return max(1, TOKENS // self.length)

    @property
    def heads(self):
        return HIDDEN // self.head_dim

    @property
    def name(self):
        mask = "causal" if self.causal else "full"
        return f"{self.op} {self.dtype} d{self.head_dim} {mask} S{self.length}"

    @property
    def flops(self):
        forward = 4 * self.batch * self.heads * self.length**2 * self.head_dim
        forward *= 0.5 if self.causal else 1.0
        return forward * (2.5 if self.op == "backward" else 1.0)


LENGTHS = [1024, 2048, 4096, 8192, 16384]

# Least ratio to cuDNN by head dim and mask (full, causal), one per length.
HOPPER_FORWARD_LENGTHS = [512] + LENGTHS
HOPPER_FORWARD_BARS = {
    64: ([1.0, 1.1, 1.15, 1.2, 1.25, 1.25], [1.0, 1.05, 1.12, 1.15, 1.2, 1.22]),
    128: ([1.1, 1.15, 1.15, 1.18, 1.18, 1.18], [1.0, 1.15, 1.2, 1.22, 1.22, 1.22]),
    256: ([1.05, 1.05, 1.05, 1.08, 1.1, 1.12], [1.0, 1.05, 1.1, 1.12, 1.1, 1.12]),
}
HOPPER_BACKWARD_BARS = {
    64: ([1.05, 1.08, 1.1, 1.12, 1.12], [1.05, 1.1, 1.12, 1.15, 1.15]),
    128: ([1.0, 1.05, 1.02, 1.06, 1.08], [1.05, 1.08, 1.1, 1.08, 1.1]),
    256: ([1.1, 1.12, 1.15, 1.18, 1.2], [1.05, 1.1, 1.12, 1.1, 1.18]),
}


def hopper_cases(op, lengths, bars):
    cases = [Case(op, "bfloat16", head_dim, length, causal, {"peer": "cudnn", "ratio": ratio})
             for head_dim, of_masks in bars.items()
             for causal, ratios in zip((False, True), of_masks)
             for length, ratio in zip(lengths, ratios)]
    return cases + [Case(op, "float16", head_dim, 4096, causal)
                    for head_dim in bars for causal in (False, True)]


def flash_cases(op, fp16_head_dims):
    """Beside FlashAttention-2, which the sm80 family must not be slower than."""
    bar = {"peer": "flash", "ratio": 1.0}
    cases = [Case(op, "bfloat16", head_dim, length, causal, bar)
             for head_dim in (64, 128, 256) for causal in (False, True) for length in LENGTHS]
    return cases + [Case(op, "float16", head_dim, 4096, causal, bar)
                    for head_dim in fp16_head_dims for causal in (False, True)]


def fp32_cases():
    bar = {"peer": "efficient", "ratio": 1.5}
    return [Case("forward", "float32", head_dim, length, causal, bar)
            for head_dim in (64, 128, 256) for causal in (False, True) for length in (1024, 4096)]


def preset_cases(preset):
    if preset == "hopper-forward":
        return hopper_cases("forward", HOPPER_FORWARD_LENGTHS, HOPPER_FORWARD_BARS)
    if preset == "hopper-backward":
        return hopper_cases("backward", LENGTHS, HOPPER_BACKWARD_BARS)
    if preset == "smoke":
        return [Case(op, "bfloat16", 128, 1024, True) for op in ("forward", "backward")]
    cases = []
    if preset in ("sm80", "forward"):
        cases += flash_cases("forward", (64, 128, 256))
    if preset in ("sm80", "fp32"):
        cases += fp32_cases()
    if preset in ("sm80", "backward"):
        cases += flash_cases("backward", (64, 128, 256))
    return cases


def judge(case, ratios):
    """The bar of a case with what was reached; None without one, or where its peer did not run."""
    if not case.bar or case.bar["peer"] not in ratios:
        return None
    return dict(case.bar, reached=ratios[case.bar["peer"]] >= case.bar["ratio"])
