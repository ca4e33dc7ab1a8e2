"""heed.jax.attention under jit and grad, and heed.attention on JAX arrays."""

import numpy as np
import pytest

import heed

jax = pytest.importorskip("jax")
jnp = jax.numpy

import heed.jax  # noqa: E402


def arrays(*shapes):
    source = np.random.default_rng(0)
    return [jnp.asarray(source.standard_normal(shape, dtype=np.float32)) for shape in shapes]


def plain(q, k, v, bias, sinks):
    s = jnp.einsum("bihd,bjhd->bhij", q, jnp.repeat(k, 2, 2)) / 4 + bias
    visible = jnp.arange(12)[None] <= jnp.arange(9)[:, None] + 3
    s = jnp.where(visible, s, -jnp.inf)
    s = jnp.concatenate([s, jnp.broadcast_to(sinks[:, None, None], s.shape[:3] + (1,))], -1)
    o = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(s, -1)[..., :-1], jnp.repeat(v, 2, 2))
    return o, jax.nn.logsumexp(s, -1)


def ours(q, k, v, bias, sinks):
    return heed.jax.attention(q, k, v, bias=bias, sinks=sinks, causal=True, return_lse=True)


def test_values_and_gradients_under_jit():
    operands = arrays((2, 9, 4, 16), (2, 12, 2, 16), (2, 12, 2, 8), (1, 4, 9, 12), (4,))

    def loss(function):
        return lambda *x: sum(jnp.sum(jnp.sin(part)) for part in function(*x))

    for mine, expected in zip(jax.jit(ours)(*operands), plain(*operands)):
        np.testing.assert_allclose(mine, expected, atol=1e-5)
    every = tuple(range(5))
    gradients = jax.jit(jax.grad(loss(ours), every))(*operands)
    for mine, expected in zip(gradients, jax.grad(loss(plain), every)(*operands)):
        np.testing.assert_allclose(mine, expected, atol=1e-4)


def test_vmap():
    q, k, v = arrays((3, 2, 9, 4, 16), (2, 12, 2, 16), (2, 12, 2, 8))
    mapped = jax.vmap(lambda one: heed.jax.attention(one, k, v))(q)
    np.testing.assert_array_equal(mapped[1], heed.attention(q[1], k, v))


def test_concrete_arrays_come_back_as_jax_arrays():
    q, k, v = arrays((2, 9, 4, 16), (2, 12, 2, 16), (2, 12, 2, 8))
    assert isinstance(heed.attention(q, k, v), jax.Array)
    half = heed.attention(*(x.astype(jnp.bfloat16) for x in (q, k, v)))
    assert half.dtype == jnp.bfloat16
