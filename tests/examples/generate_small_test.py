"""Compares heed_example_generate with itself on a small model of random weights.

Usage: generate_small_test.py PROGRAM [--device cuda]

Needs nothing but Python: the model has the layout of SmolLM2, three layers and 512 tokens. The most
likely token after each of 96 must be the same however many tokens the first call takes, and with
--device cuda on the GPU as on the CPU, wherever its lead over the second one is above MARGIN.
"""

import pathlib
import random
import struct
import subprocess
import sys
import tempfile

NUM_TOKENS = 96
VOCABULARY, FEATURES, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS = 512, 192, 6, 2, 32, 384, 3
# In logits, of which the standard deviation is about 14. Sessions on a GPU keep fp16.
MARGIN = {"cpu": 1e-3, "cuda": 0.15}
ENOUGH_ABOVE_MARGIN = 80
U32, F32, STRING, ARRAY = 4, 6, 8, 9
TENSOR_F16 = 1


def packed_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def field(key, kind, value):
    head = packed_string(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + packed_string(value)
    if kind == ARRAY:
        return head + struct.pack("<IQ", STRING, len(value)) + b"".join(map(packed_string, value))
    return head + struct.pack("<I" if kind == U32 else "<f", value)


def metadata():
    numbers = {"rope.dimension_count": HEAD_DIM, "attention.head_count": HEADS,
               "attention.head_count_kv": KV_HEADS, "block_count": LAYERS}
    reals = {"attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0}
    return [field("general.architecture", STRING, "llama"),
            *(field(f"llama.{key}", U32, value) for key, value in numbers.items()),
            *(field(f"llama.{key}", F32, value) for key, value in reals.items())]


def tensors(source):
    """(name, [rows, columns] or [columns], values)"""
    def normal(name, rows, columns):
        deviation = columns ** -0.5 if rows > 1 else 0.1
        base = 0.0 if rows > 1 else 1.0
        values = [base + source.gauss(0.0, deviation) for _ in range(rows * columns)]
        return name, [rows, columns] if rows > 1 else [columns], values

    yield "token_embd.weight", [VOCABULARY, FEATURES], [source.gauss(0.0, 1.0)
                                                        for _ in range(VOCABULARY * FEATURES)]
    yield normal("output_norm.weight", 1, FEATURES)
    for layer in range(LAYERS):
        for name, rows, columns in (("attn_norm", 1, FEATURES), ("ffn_norm", 1, FEATURES),
                                    ("attn_q", HEADS * HEAD_DIM, FEATURES),
                                    ("attn_k", KV_HEADS * HEAD_DIM, FEATURES),
                                    ("attn_v", KV_HEADS * HEAD_DIM, FEATURES),
                                    ("attn_output", FEATURES, HEADS * HEAD_DIM),
                                    ("ffn_gate", FFN, FEATURES), ("ffn_up", FFN, FEATURES),
                                    ("ffn_down", FEATURES, FFN)):
            yield normal(f"blk.{layer}.{name}.weight", rows, columns)


def write_model(path):
    infos, data = [], bytearray()
    for name, shape, values in tensors(random.Random(1)):
        infos.append(packed_string(name) + struct.pack("<I", len(shape))
                     + struct.pack(f"<{len(shape)}Q", *reversed(shape))
                     + struct.pack("<IQ", TENSOR_F16, len(data)))
        data += struct.pack(f"<{len(values)}e", *values)
        data += bytes(-len(data) % 32)
    fields = metadata()
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(infos), len(fields))
    head += b"".join(fields) + b"".join(infos)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def follow(program, folder, prefill, device):
    """(most likely token, its lead) after each token."""
    command = [program, "--model", str(folder / "model.gguf"), "--follow",
               str(folder / "tokens.txt"), "--prefill", str(prefill), "--device", device]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [(int(token), float(lead)) for token, lead in map(str.split, output.splitlines())]


def compare(got, wanted, margin):
    clear = [at for at, (_, lead) in enumerate(wanted) if lead > margin]
    wrong = [at for at in clear if got[at][0] != wanted[at][0]]
    worst = max(abs(lead - other) for (token, lead), (same, other) in zip(got, wanted)
                if token == same)
    print(f"{len(clear)} of {len(wanted)} tokens with a lead above {margin}, {len(wrong)} differ; "
          f"leads differ by up to {worst:.2g}")
    return len(got) == NUM_TOKENS and len(clear) >= ENOUGH_ABOVE_MARGIN and not wrong


def main():
    program = sys.argv[1]
    device = "cuda" if sys.argv[2:] == ["--device", "cuda"] else "cpu"
    source = random.Random(2)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder / "model.gguf")
        (folder / "tokens.txt").write_text(
            " ".join(str(source.randrange(VOCABULARY)) for _ in range(NUM_TOKENS)))
        wanted = follow(program, folder, NUM_TOKENS, "cpu")
        agree = [compare(follow(program, folder, prefill, device), wanted, MARGIN[device])
                 for prefill in (1, 40)]
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
