"""heed.attention on CuPy arrays, where there is CuPy and a CUDA device."""

import numpy as np
import pytest

import heed

cupy = pytest.importorskip("cupy")
if not cupy.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)


def arrays(dtype=np.float16):
    source = np.random.default_rng(0)
    return [source.standard_normal((2, length, heads, 64)).astype(dtype)
            for length, heads in ((40, 4), (50, 2), (50, 2))]


def test_values_on_the_current_stream():
    q, k, v = arrays()
    expected = heed.attention(*(x.astype(np.float32) for x in (q, k, v)), causal=True)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        o, lse = heed.attention(*map(cupy.asarray, (q, k, v)), causal=True, return_lse=True)
        stream.synchronize()
    assert isinstance(o, cupy.ndarray) and o.dtype == np.float16 and lse.shape == (2, 4, 40)
    np.testing.assert_allclose(o.get(), expected, atol=4e-3)


def test_slices_and_gradients():
    q, k, v = (x.astype(np.float32) for x in arrays())
    on_device = [cupy.asarray(np.concatenate([x, x], axis=1))[:, ::2] for x in (q, k, v)]
    on_host = [x.get() for x in on_device]
    results = []
    for operands in (on_device, on_host):
        o, lse = heed.attention(*operands, return_lse=True)
        gradients = heed.attention_backward(o, *operands, o, lse)
        results.append([x.get() if isinstance(x, cupy.ndarray) else x
                        for x in (o, *(gradients[name] for name in ("dq", "dk", "dv")))])
    for mine, other in zip(*results):
        np.testing.assert_allclose(mine, other, atol=2e-3, rtol=2e-3)


def test_other_libraries_are_refused():
    q, k, v = arrays()
    with pytest.raises(TypeError, match="k: .*one library"):
        heed.attention(cupy.asarray(q), k, v)
