"""heed.attention inside jax.jit, jax.grad and jax.vmap, on the CPU.

The call leaves the compiled program by jax.pure_callback and reads JAX's buffers in place;
gradients are heed's own backward (jax.custom_vjp).
"""

import functools

import jax
import jax.numpy as jnp
import numpy

from heed import operations

# Options that are arrays travel as operands, the others are part of the traced program.
_ARRAYS = ("alibi_slopes", "bias", "mask", "sinks", "cu_seqlens_q", "cu_seqlens_kv", "seqused_q",
           "seqused_kv", "block_table")
# Those that attention is differentiated with respect to, beside q, k and v.
_TRAINABLE = ("bias", "sinks")


def _shape_like(array):
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _split(options):
    named = {name: options[name] for name in _ARRAYS if options.get(name) is not None}
    rest = {name: value for name, value in options.items() if name not in _ARRAYS}
    return named, tuple(sorted(rest.items()))


def _run_forward(static, q, k, v, named):
    arrays = {name: numpy.asarray(value) for name, value in named.items()}
    return operations.attention(*map(numpy.asarray, (q, k, v)), return_lse=True, **arrays,
                                **dict(static))


def _run_backward(static, d_o, q, k, v, o, lse, named, d_lse):
    arrays = {name: numpy.asarray(value) for name, value in named.items()}
    gradients = operations.attention_backward(
        *map(numpy.asarray, (d_o, q, k, v, o, lse)), d_lse=numpy.asarray(d_lse),
        wants_d_bias="bias" in arrays, wants_d_sinks="sinks" in arrays, **arrays, **dict(static))
    return tuple(gradients[name] for name in ("dq", "dk", "dv")) + tuple(
        gradients["d_" + name] for name in _TRAINABLE if name in arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(static, q, k, v, named):
    is_packed = "cu_seqlens_q" in named
    lse_shape = (q.shape[1], q.shape[0]) if is_packed else (q.shape[0], q.shape[2], q.shape[1])
    shapes = (jax.ShapeDtypeStruct(q.shape[:-1] + v.shape[-1:], q.dtype),
              jax.ShapeDtypeStruct(lse_shape, jnp.float32))
    return jax.pure_callback(functools.partial(_run_forward, static), shapes, q, k, v, named,
                             vmap_method="sequential")


def _forward_rule(static, q, k, v, named):
    o, lse = _attention(static, q, k, v, named)
    return (o, lse), (q, k, v, o, lse, named)


def _backward_rule(static, saved, cotangents):
    q, k, v, o, lse, named = saved
    d_o, d_lse = cotangents
    trained = [name for name in _TRAINABLE if name in named]
    shapes = tuple(map(_shape_like, (q, k, v))) + tuple(_shape_like(named[n]) for n in trained)
    gradients = jax.pure_callback(functools.partial(_run_backward, static), shapes, d_o, q, k, v, o,
                                  lse, named, d_lse, vmap_method="sequential")
    of_named = dict(zip(trained, gradients[3:]))
    return (*gradients[:3], {name: of_named.get(name, _no_tangent(value))
                             for name, value in named.items()})


def _no_tangent(array):
    if jnp.issubdtype(array.dtype, jnp.inexact):
        return jnp.zeros_like(array)
    return numpy.zeros(array.shape, jax.dtypes.float0)


_attention.defvjp(_forward_rule, _backward_rule)


def attention(q, k, v, *, return_lse=False, **options):
    """heed.attention for JAX arrays, traced or not; same shapes and options. Differentiable in q,
    k, v, bias and sinks; lse too carries a gradient."""
    named, static = _split(options)
    o, lse = _attention(static, q, k, v, {name: jnp.asarray(a) for name, a in named.items()})
    return (o, lse) if return_lse else o
