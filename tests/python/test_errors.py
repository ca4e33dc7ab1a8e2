"""Wrong calls: an exception that names argument, rule and value, and outputs untouched."""

import os
import subprocess
import sys

import numpy as np
import pytest

import heed


def arrays():
    return [np.zeros(shape, np.float32) for shape in ((1, 3, 4, 8), (1, 5, 2, 8), (1, 5, 2, 8))]


@pytest.mark.parametrize("options, kind, text", [
    ({"foo": 1}, TypeError, "unexpected option 'foo'"),
    ({"alignment": "left"}, ValueError, "alignment = 'left': must be one of bottom_right"),
    ({"backend": "gpu"}, ValueError, "backend = 'gpu': must be one of auto, cpu"),
    ({"window": 3}, ValueError, "window = 3: must be a pair"),
    ({"window": (-2, 0)}, ValueError, r"window = \(-2, 0\): each side must be -1 .* or not"),
    ({"window": (1.5, 0)}, TypeError, "window = 1.5: must be an integer"),
    ({"dropout_p": 1.0}, heed.InvalidArgumentError, "dropout_p"),
    ({"scale": float("nan")}, heed.InvalidArgumentError, "scale"),
    ({"sinks": [1.0] * 4}, TypeError, "list"),
    ({"sinks": np.zeros(3, np.float32)}, heed.InvalidArgumentError, "sinks"),
    ({"bias": np.zeros(5, np.complex64)}, TypeError, "bias: dtype complex64"),
    ({"kernel": "none"}, heed.HeedError, "none"),
    ({"max_seqlen_q": 4}, ValueError, "max_seqlen_q"),
    ({"window": (2**64, 0)}, ValueError, "window = 18446744073709551616"),
    ({"num_threads": 2**32 + 1}, ValueError, "num_threads = 4294967297"),
    ({"dropout_p": 0.5, "dropout_seed": -1}, ValueError, "dropout_seed = -1"),
    ({"scale": "1"}, TypeError, "scale = '1': must be a number"),
    ({"causal": "false"}, TypeError, "causal = 'false': must be True or False"),
    ({"kernel": 5}, TypeError, "kernel = 5: must be a string"),
    ({"kernel": "cpu\0x"}, ValueError, "kernel = 'cpu.*x': must not hold a NUL"),
    ({"bias": np.zeros(5, ">f4")}, TypeError, "bias: dtype >f4: must be in the byte order"),
    ({"bias": [0.0] * 5}, TypeError, "bias: an argument of type builtins.list"),
    ({"mask": np.ma.masked_array(np.ones(5, bool))}, TypeError, "mask: a masked array"),
])
def test_bad_options(options, kind, text):
    out = np.full((1, 3, 4, 8), 7.0, np.float32)
    with pytest.raises(kind, match=text):
        heed.attention(*arrays(), out=out, **options)
    assert (out == 7.0).all()


def test_bad_arrays():
    q, k, v = arrays()
    with pytest.raises(heed.InvalidArgumentError, match="k.shape"):
        heed.attention(q, k[..., :4], v)
    with pytest.raises(heed.InvalidArgumentError, match="dtype"):
        heed.attention(q, k.astype(np.float16), v)
    with pytest.raises(ValueError, match="q.ndim = 3: must be 4"):
        heed.attention(q[0], k, v)
    with pytest.raises(TypeError, match="q: an argument of type builtins.list"):
        heed.attention([1.0], k, v)
    with pytest.raises(TypeError, match="v: an argument of type builtins.NoneType"):
        heed.attention(q, k, None)
    swapped = q.astype(">f4")
    for call in (lambda: heed.attention(swapped, k, v),
                 lambda: heed.decode(swapped, k, v, np.zeros(1, np.int32)),
                 lambda: heed.attention_backward(q, swapped, k, v, q, q)):
        with pytest.raises(TypeError, match="q: dtype >f4: must be in the byte order"):
            call()
    with pytest.raises(heed.InvalidArgumentError, match="stride"):
        heed.attention(q[..., ::2], k[..., :4], v)
    with pytest.raises(ValueError, match="scale: must be within the range of a double"):
        heed.attention(q, k, v, scale=10**400)
    scales = np.ones((1, 5, 2, 1), np.float32)
    with pytest.raises(heed.InvalidArgumentError, match="quant.k_scales: must be NULL"):
        heed.decode(q[:, :1], k, v, np.zeros(1, np.int32), k_scales=scales)
    with pytest.raises(ValueError, match="wants_d_bias: needs the option bias"):
        heed.attention_backward(q, q, k, v, q, np.zeros((1, 4, 3), np.float32), wants_d_bias=True)


def test_outputs_must_be_writable():
    q, k, v = arrays()
    out = np.zeros((1, 3, 4, 8), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: read-only"):
        heed.attention(q, k, v, out=out)
    k.flags.writeable = False
    with pytest.raises(ValueError, match="k_cache: read-only"):
        heed.decode(q, k, v, np.zeros(1, np.int32), k[:, :3], v[:, :3])
    with pytest.raises(ValueError, match=r"out.shape = \(1, 3, 4, 8\): must be \(1, 1, 2, 2\)"):
        heed.dropout_mask((1, 1, 2, 2), 0.5, out=out)


def test_bad_caches():
    q, k, v = arrays()
    lengths = np.zeros(1, np.int32)
    with pytest.raises(ValueError, match="q.ndim = 2: must be 4"):
        heed.decode(q[0, 0], k, v, lengths)
    with pytest.raises(TypeError, match="cache_lengths: an argument of type builtins.list"):
        heed.decode(q, k, v, [0])
    with pytest.raises(ValueError, match="groups = 2: must be 1 for q8_0"):
        heed.quantize_kv(k, "q8_0", groups=2)
    payload, scales = heed.quantize_kv(np.zeros((1, 5, 2, 15), np.float32), "int4")
    with pytest.raises(ValueError, match="head_dim_v = None: must be given"):
        heed.decode(np.zeros((1, 1, 4, 15), np.float32), payload, payload, lengths,
                    kv_format="int4", k_scales=scales, v_scales=scales)


def run(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


def test_a_missing_library_is_named():
    result = run("import heed; heed.version()", HEED_LIBRARY="/nowhere/libheed.so")
    assert result.returncode != 0 and "/nowhere/libheed.so" in result.stderr


def test_import_loads_no_framework_and_no_library():
    result = run("import sys, heed; print([m for m in ('numpy', 'torch', 'jax', 'cupy') "
                 "if m in sys.modules])", HEED_LIBRARY="/nowhere/libheed.so")
    assert result.stdout.strip() == "[]", result.stderr


def test_forked_children_compute():
    code = """
import os, numpy as np, heed
q = np.ones((1, 300, 4, 64), np.float32)
before = heed.attention(q, q, q)
child = os.fork()
if child == 0:
    os._exit(0 if (heed.attention(q, q, q) == before).all() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            timeout=60, check=False)
    assert result.stdout.strip() == "0", result.stderr


def test_explain_names_the_kernel_and_info_the_backends():
    q, k, v = arrays()
    assert "kernel: cpu." in heed.explain(q, k, v, causal=True)
    assert "backward" in heed.explain(q, k, v, backward=True)
    assert heed.info()["backends"]


def test_tune_stores_what_explain_then_says(tmp_path, monkeypatch):
    monkeypatch.setenv("HEED_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HEED_TUNE", "on")
    monkeypatch.delenv("HEED_CACHE", raising=False)
    q, k, v = arrays()
    assert heed.clear_tuning() == 0
    for options, text in (({"num_rounds": 2**32 + 1}, "num_rounds = 4294967297"),
                          ({"num_rounds": 1.5}, "num_rounds = 1.5"),
                          ({"slice_seconds": "1"}, "slice_seconds = '1'"),
                          ({"dry_run": "no"}, "dry_run = 'no'")):
        with pytest.raises((TypeError, ValueError), match=text):
            heed.tune(q, k, v, **options)
    rows = heed.tune(q, k, v, num_rounds=3, slice_seconds=1e-4)
    assert rows[0]["verdict"] == "default" and rows[0]["ratio"] == 1.0
    assert not [row for row in rows if row["verdict"] == "refused"]
    chosen = [row["kernel"] for row in rows if row["is_chosen"]]
    assert [choice["kernel"] for choice in heed.tuned()] == chosen
    assert "tuning: " in heed.explain(q, k, v)
    assert heed.clear_tuning() == 1
    assert "tuning: " not in heed.explain(q, k, v)
    assert heed.tune(q, k, v, backward=True, dry_run=True, num_rounds=1, slice_seconds=1e-4)
    assert heed.tuned() == []
    with pytest.raises(heed.InvalidArgumentError, match="exec.kernel"):
        heed.tune(q, k, v, kernel=chosen[0])
