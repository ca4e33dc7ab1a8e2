"""heed.attention on NumPy arrays against float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heed
import reference

# Largest error of an element of o in terms of the largest |v|, and of lse: float32.
TOLERANCE = 2e-5


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def inputs(seed, batch=2, q_heads=4, kv_heads=2, q_len=9, kv_len=21, dim=16, dim_v=24):
    return (random(seed, batch, q_len, q_heads, dim),
            random(seed + 1, batch, kv_len, kv_heads, dim),
            random(seed + 2, batch, kv_len, kv_heads, dim_v))


def check(q, k, v, tolerance=TOLERANCE, **options):
    o, lse = heed.attention(q, k, v, return_lse=True, **options)
    expected, expected_lse = reference.attention(q, k, v, **options)
    assert o.dtype == q.dtype and o.shape == q.shape[:-1] + v.shape[-1:]
    np.testing.assert_allclose(o.astype(np.float64), expected, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(lse, expected_lse, atol=tolerance, rtol=tolerance)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_option_together(data):
    draw = data.draw
    kv_heads, group = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 5]))
    shape = {"batch": draw(st.integers(1, 3)), "q_heads": kv_heads * group, "kv_heads": kv_heads,
             "q_len": draw(st.integers(1, 40)), "kv_len": draw(st.integers(1, 70)),
             "dim": draw(st.sampled_from([1, 8, 40, 64])),
             "dim_v": draw(st.sampled_from([1, 16, 64]))}
    seed = draw(st.integers(0, 2**32))
    q, k, v = inputs(seed, **shape)
    scores = (shape["batch"], shape["q_heads"], shape["q_len"], shape["kv_len"])
    options = {"causal": draw(st.booleans()),
               "alignment": draw(st.sampled_from(["bottom_right", "top_left"])),
               "window": (draw(st.sampled_from([-1, 0, 5])), draw(st.sampled_from([-1, 0, 5]))),
               "softcap": draw(st.sampled_from([0.0, 2.0])),
               "scale": draw(st.sampled_from([None, 0.3, -0.2]))}
    if options["causal"]:
        options["window"] = (options["window"][0], -1)
    if draw(st.booleans()):
        options["bias"] = random(seed + 3, 1, *scores[1:])
    if draw(st.booleans()):
        options["mask"] = random(seed + 4, scores[0], 1, 1, scores[3]) > -0.5
    if draw(st.booleans()):
        options["alibi_slopes"] = abs(random(seed + 5, scores[1]))
    if draw(st.booleans()):
        options["sinks"] = random(seed + 6, scores[1])
    check(q, k, v, **options)


def test_dropout_uses_the_mask_that_dropout_mask_returns():
    q, k, v = inputs(1)
    keep = heed.dropout_mask((2, 4, 9, 21), 0.3, seed=7, offset=3)
    o = heed.attention(q, k, v, dropout_p=0.3, dropout_seed=7, dropout_offset=3)
    expected, _ = reference.attention(q, k, v, dropout_p=0.3, keep=keep)
    np.testing.assert_allclose(o, expected, atol=TOLERANCE)
    assert 0.5 < keep.mean() < 0.9


@pytest.mark.parametrize("dtype, tolerance", [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_half_precision(dtype, tolerance):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    check(*(array.astype(dtype) for array in inputs(2)), tolerance=tolerance, causal=True)


def test_packed_sequences_equal_each_alone():
    lengths_q, lengths_kv = [3, 0, 7], [5, 4, 7]
    offsets = [np.cumsum([0] + lengths, dtype=np.int32) for lengths in (lengths_q, lengths_kv)]
    q, k, v = random(3, 10, 4, 16), random(4, 16, 2, 16), random(5, 16, 2, 24)
    o, lse = heed.attention(q, k, v, causal=True, return_lse=True, cu_seqlens_q=offsets[0],
                            cu_seqlens_kv=offsets[1])
    assert o.shape == (10, 4, 24) and lse.shape == (4, 10)
    for b in range(3):
        rows, keys = slice(*offsets[0][b:b + 2]), slice(*offsets[1][b:b + 2])
        alone, alone_lse = reference.attention(q[None, rows], k[None, keys], v[None, keys],
                                               causal=True)
        np.testing.assert_allclose(o[rows], alone[0], atol=TOLERANCE)
        np.testing.assert_allclose(lse[:, rows], alone_lse[0], atol=TOLERANCE)


def test_packed_rows_outside_every_sequence_are_zero():
    q, k, v = random(3, 8, 4, 16), random(4, 8, 2, 16), random(5, 8, 2, 24)
    offsets = np.array([0, 3, 5], dtype=np.int32)
    o, lse = heed.attention(q, k, v, cu_seqlens_q=offsets, cu_seqlens_kv=offsets, return_lse=True)
    assert not o[5:].any() and np.isneginf(lse[:, 5:]).all() and o[:5].any()


@pytest.mark.parametrize("dim", [1, 5, 16])
def test_quantised_decode_of_any_head_dim(dim):
    q, k, v = inputs(20, q_len=1, kv_len=16, dim=dim, dim_v=dim)
    lengths = np.array([9, 15], np.int32)
    expected = heed.decode(q, k, v, lengths)
    for layout in ("rows", "interleaved"):
        (k8, k_scales), (v8, v_scales) = (heed.quantize_kv(x, kv_layout=layout) for x in (k, v))
        o = heed.decode(q, k8, v8, lengths, kv_format="int8", kv_layout=layout, k_scales=k_scales,
                        v_scales=v_scales)
        np.testing.assert_allclose(o, expected, atol=0.05)


def test_gradient_of_a_repeated_bias():
    q, k, v = inputs(21)
    bias = np.broadcast_to(random(22, 9, 21), (1, 4, 9, 21))
    o, lse = heed.attention(q, k, v, bias=bias, return_lse=True)
    gradients = heed.attention_backward(o, q, k, v, o, lse, bias=bias, wants_d_bias=True)
    assert gradients["d_bias"].shape == (1, 1, 9, 21)


@pytest.mark.parametrize("q_len, kv_len", [(4, 0), (0, 4)])
def test_gradient_of_an_empty_bias(q_len, kv_len):
    q, k = random(23, 1, q_len, 2, 8), random(24, 1, kv_len, 2, 8)
    one = random(25, 1, 1, q_len, kv_len)
    for bias in (one, np.broadcast_to(one, (1, 2, q_len, kv_len)), np.repeat(one, 2, 1)):
        o, lse = heed.attention(q, k, k, bias=bias, return_lse=True)
        gradients = heed.attention_backward(o, q, k, k, o, lse, bias=bias, wants_d_bias=True)
        assert gradients["d_bias"].shape == bias.shape


def test_paged_keys():
    pages = np.array([[3, 0], [2, 1]], dtype=np.int32)
    used = np.array([6, 3], dtype=np.int32)
    q, k, v = random(6, 2, 2, 4, 16), random(7, 4, 4, 2, 16), random(8, 4, 4, 2, 24)
    o = heed.attention(q, k, v, block_table=pages, seqused_kv=used)
    for b in range(2):
        keys, values = (pool[pages[b]].reshape(1, 8, 2, -1)[:, :used[b]] for pool in (k, v))
        alone, _ = reference.attention(q[b:b + 1], keys, values)
        np.testing.assert_allclose(o[b], alone[0], atol=TOLERANCE)


def test_strided_views_are_read_in_place():
    heads_first = random(9, 2, 4, 9, 16)
    q = heads_first.transpose(0, 2, 1, 3)
    pair = random(10, 2, 21, 2, 2, 16)
    check(q, pair[:, :, 0], pair[:, :, 1])
    check(q[:, ::2], pair[:, :, 0], np.broadcast_to(pair[:1, :, 1], (2, 21, 2, 16)))


def test_out_receives_the_result():
    q, k, v = inputs(11)
    out = np.full((2, 9, 4, 24), np.nan, np.float32)
    assert heed.attention(q, k, v, out=out) is out
    np.testing.assert_array_equal(out, heed.attention(q, k, v))


def test_empty_arrays():
    q, k, v = inputs(12, q_len=0)
    assert heed.attention(q, k, v).shape == (2, 0, 4, 24)
    q, k, v = inputs(12, kv_len=0)
    o, lse = heed.attention(q, k, v, return_lse=True)
    assert not o.any() and np.isneginf(lse).all()


def test_gradients_by_finite_differences():
    options = {"causal": True, "backend": "reference", "softcap": 3.0}
    q, k, v = (array.astype(np.float64) for array in inputs(13, q_len=3, kv_len=5, dim=4, dim_v=4))
    bias, sinks = random(14, 1, 4, 3, 5).astype(np.float32), random(15, 4)
    options.update(bias=bias, sinks=sinks)
    o, lse = heed.attention(q, k, v, return_lse=True, **options)
    d_o = random(16, *o.shape).astype(np.float64)
    gradients = heed.attention_backward(d_o, q, k, v, o, lse, wants_d_bias=True,
                                        wants_d_sinks=True, **options)
    step = 1e-6
    for name, array in (("dq", q), ("dk", k), ("dv", v)):
        direction = random(17, *array.shape).astype(np.float64)
        array += step * direction
        after = (heed.attention(q, k, v, **options) * d_o).sum()
        array -= 2 * step * direction
        before = (heed.attention(q, k, v, **options) * d_o).sum()
        array += step * direction
        slope = (after - before) / (2 * step)
        assert abs(slope - (gradients[name] * direction).sum()) < 1e-5 * max(1.0, abs(slope))
    assert gradients["d_bias"].shape == bias.shape and gradients["d_sinks"].shape == (4,)
