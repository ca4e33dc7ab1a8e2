"""Attention of other libraries on a CPU: PyTorch, ONNX Runtime and attention written in NumPy.

Every function takes torch tensors [B, H, S, D] and gives a call without arguments that returns a
list of torch tensors. Threads of NumPy's BLAS are set before this module is imported."""

import numpy as np
import torch

try:
    import onnx
    import onnxruntime
except ImportError:
    onnxruntime = None


def sdpa(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def torch_backward(q, k, v, d_o, causal):
    leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    o = sdpa(*leaves, causal)
    return lambda: list(torch.autograd.grad(o, leaves, d_o, retain_graph=True))


def onnx_session(node, inputs, outputs, threads):
    """An ONNX Runtime session of one node; inputs and outputs are {name: (type, shape)}."""
    value = lambda name, of: onnx.helper.make_tensor_value_info(name, *of)
    graph = onnx.helper.make_graph([node], "attention",
                                   [value(name, of) for name, of in inputs.items()],
                                   [value(name, of) for name, of in outputs.items()])
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[
        onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)])
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model.SerializeToString(), session_options,
                                        providers=["CPUExecutionProvider"])


def rows_of(tensor):
    """[B, S, H D] of [B, H, S, D], as ONNX Runtime takes it."""
    batch, heads, length, head_dim = tensor.shape
    return tensor.transpose(1, 2).reshape(batch, length, heads * head_dim).contiguous().numpy()


def heads_of(rows, like):
    batch, heads, length, head_dim = like.shape
    return torch.from_numpy(rows).reshape(batch, length, heads, head_dim).transpose(1, 2)


def grouped_node(heads, kv_heads, past):
    """GroupQueryAttention; past: names of the caches, or empty ones."""
    return onnx.helper.make_node(
        "GroupQueryAttention", ["q", "k", "v", *past, "last", "length"],
        ["o", "present_k", "present_v"], domain="com.microsoft", num_heads=heads,
        kv_num_heads=kv_heads)


def onnx_forward(q, k, v, causal, threads):
    """MultiHeadAttention, or GroupQueryAttention (always causal) where heads share keys."""
    batch, heads, length, _ = q.shape
    floats, ints = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
    feeds = {name: rows_of(t) for name, t in zip("qkv", (q, k, v))}
    inputs = {name: (floats, rows.shape) for name, rows in feeds.items()}
    outputs = {"o": inputs["q"]}
    if k.shape[1] == heads:
        node = onnx.helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["o"],
                                     domain="com.microsoft", num_heads=heads,
                                     unidirectional=int(causal))
    else:
        node = grouped_node(heads, k.shape[1], ["", ""])
        inputs |= {"last": (ints, [batch]), "length": (ints, [1])}
        feeds |= {"last": np.full(batch, length - 1, np.int32),
                  "length": np.array([length], np.int32)}
        outputs |= {name: (floats, k.shape) for name in ("present_k", "present_v")}
    session = onnx_session(node, inputs, outputs, threads)
    return lambda: [heads_of(session.run(["o"], feeds)[0], q)]


def onnx_decode(q, k, v, threads):
    """GroupQueryAttention of one new token, the last of k and v, over caches that it appends to in
    place."""
    batch, heads, _, head_dim = q.shape
    floats, ints = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
    length = k.shape[2]
    feeds = {"q": rows_of(q), "k": rows_of(k[:, :, -1:]), "v": rows_of(v[:, :, -1:]),
             "last": np.full(batch, length - 1, np.int32), "length": np.array([length], np.int32)}
    caches = {"k": onnxruntime.OrtValue.ortvalue_from_numpy(k.contiguous().numpy()),
              "v": onnxruntime.OrtValue.ortvalue_from_numpy(v.contiguous().numpy())}
    inputs = {name: (ints if name in ("last", "length") else floats, feed.shape)
              for name, feed in feeds.items()}
    inputs |= {f"past_{name}": (floats, k.shape) for name in caches}
    outputs = {"o": (floats, feeds["q"].shape)}
    outputs |= {f"present_{name}": (floats, k.shape) for name in caches}
    node = grouped_node(heads, k.shape[1], ["past_k", "past_v"])
    session = onnx_session(node, inputs, outputs, threads)
    binding = session.io_binding()
    for name, feed in feeds.items():
        binding.bind_cpu_input(name, feed)
    for name, cache in caches.items():
        binding.bind_ortvalue_input(f"past_{name}", cache)
        binding.bind_ortvalue_output(f"present_{name}", cache)
    o = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(feeds["q"].shape), np.float32)
    binding.bind_ortvalue_output("o", o)

    def run():
        session.run_with_iobinding(binding)
        return [heads_of(o.numpy(), q)]
    return run


def numpy_forward(q, k, v, causal):
    """Scores of all heads in memory; heads that share keys are rows of one product."""
    shape = q.shape
    q, k, v = (t.contiguous().numpy() for t in (q, k, v))
    scale = np.float32(shape[-1] ** -0.5)
    grouped = q.reshape(shape[0], k.shape[1], -1, shape[-1])
    hidden = np.triu(np.full((shape[2], k.shape[2]), -np.inf, np.float32), 1) if causal else None

    def run():
        scores = np.matmul(grouped, np.swapaxes(k, -1, -2))
        scores *= scale
        if hidden is not None:
            by_row = scores.reshape(shape[0], shape[1], shape[2], -1)
            by_row += hidden
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return [torch.from_numpy(np.matmul(scores, v).reshape(shape))]
    return run


def numpy_bytes(heads, q_len, kv_len):
    """Memory that numpy_forward takes beside its inputs: scores, one copy, and the mask."""
    return 4 * q_len * kv_len * (2 * heads + 1)
