"""heed.attention on torch tensors: values, gradients, compilation, CUDA graphs, autocast."""

import pytest
import torch
import torch.nn.functional as F

import heed
import heed.calls
import heed.torch
from heed import prepared


def inputs(device, dtype=torch.float32, batch=2, q_len=19, kv_len=33, q_heads=4, kv_heads=2, dim=16,
           dim_v=24):
    return [torch.randn(batch, length, heads, width, device=device, dtype=dtype)
            for length, heads, width in ((q_len, q_heads, dim), (kv_len, kv_heads, dim),
                                         (kv_len, kv_heads, dim_v))]


def sdpa(q, k, v, **options):
    return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                          enable_gqa=True, **options).transpose(1, 2)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float16, 4e-3),
                                              (torch.bfloat16, 3e-2)])
def test_values_and_gradients(device, dtype, tolerance):
    ours = [x.requires_grad_() for x in inputs(device, dtype, q_len=33)]
    theirs = [x.detach().float().requires_grad_() for x in ours]
    o = heed.attention(*ours, causal=True, alignment="top_left")
    expected = sdpa(*theirs, is_causal=True)
    assert o.dtype == dtype and o.device == ours[0].device
    torch.testing.assert_close(o.float(), expected, atol=tolerance, rtol=tolerance)
    d_o = torch.randn_like(o)
    o.backward(d_o)
    expected.backward(d_o.float())
    for mine, other in zip(ours, theirs):
        assert mine.grad.dtype == dtype
        torch.testing.assert_close(mine.grad.float(), other.grad, atol=4 * tolerance,
                                   rtol=4 * tolerance)


def test_gradcheck_through_o_and_lse():
    q, k, v = (x.double().requires_grad_() for x in inputs("cpu", batch=1, q_len=3, kv_len=4, dim=4,
                                                           dim_v=4))
    torch.manual_seed(0)
    assert torch.autograd.gradcheck(
        lambda *arrays: heed.attention(*arrays, causal=True, softcap=2.0, return_lse=True,
                                       backend="reference"), (q, k, v))


def test_bias_and_sinks_get_gradients(device):
    q, k, v = inputs(device)
    bias = torch.randn(1, 4, 19, 33, device=device, requires_grad=True)
    sinks = torch.randn(4, device=device, requires_grad=True)
    heed.attention(q, k, v, bias=bias, sinks=sinks).square().sum().backward()
    bias_2 = bias.detach().clone().requires_grad_()
    sinks_2 = sinks.detach().clone().requires_grad_()
    s = torch.einsum("bihd,bjhd->bhij", q, k.repeat_interleave(2, 2)) / 4 + bias_2
    s = torch.cat([s, sinks_2[None, :, None, None].expand(2, 4, 19, 1)], -1)
    o = torch.einsum("bhij,bjhd->bihd", s.softmax(-1)[..., :-1], v.repeat_interleave(2, 2))
    o.square().sum().backward()
    torch.testing.assert_close(bias.grad, bias_2.grad, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(sinks.grad, sinks_2.grad, atol=1e-4, rtol=1e-4)


def test_an_expanded_bias_gets_its_gradient(device):
    q, k, v = inputs(device)
    bias = torch.randn(19, 33, device=device, requires_grad=True)
    heed.attention(q, k, v, bias=bias.expand(1, 4, 19, 33)).square().sum().backward()
    expanded, bias.grad = bias.grad, None
    heed.attention(q, k, v, bias=bias).square().sum().backward()
    torch.testing.assert_close(bias.grad, expanded, atol=1e-4, rtol=1e-4)


def test_lazy_views_and_lists_are_refused(device):
    q, k, v = inputs(device)
    with torch.no_grad():
        heed.attention(q, k, v)
        with pytest.raises(ValueError, match="q: a lazily negated"):
            heed.attention(torch._neg_view(q), k, v)
    with pytest.raises(TypeError, match="bias: .*list"):
        heed.attention(q, k, v, bias=[0.0])
    with pytest.raises(ValueError, match="decode: has no gradient"):
        heed.decode(q[:, :1].requires_grad_(), k, v, torch.zeros(2, dtype=torch.int32))


@pytest.mark.parametrize("name", ["alibi_slopes", "mask", "bias", "sinks"])
def test_tensors_changed_before_the_backward_pass_are_noticed(device, name):
    q, k, v = (torch.randn(1, 6, 2, 16, device=device, requires_grad=True) for _ in range(3))
    tensor = {"alibi_slopes": torch.rand(2), "mask": torch.ones(6, 6, dtype=torch.bool),
              "bias": torch.randn(6, 6), "sinks": torch.randn(2)}[name].to(device)
    o = heed.attention(q, k, v, **{name: tensor})
    if name == "mask":
        tensor.logical_not_()
    else:
        tensor.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_tensors_in_the_place_of_numbers_are_refused(device):
    q = torch.randn(1, 6, 2, 16, device=device)
    with pytest.raises(TypeError, match="scale: must be a number, not a tensor"):
        heed.attention(q, q, q, scale=torch.tensor(0.5))


def test_only_the_inputs_that_ask_get_gradients(device):
    q, k, v = inputs(device)
    k.requires_grad_()
    heed.attention(q, k, v).sum().backward()
    assert k.grad is not None and q.grad is None


def test_expanded_and_transposed_gradients(device):
    q, k, v = (x.requires_grad_() for x in inputs(device))
    o = heed.attention(q, k, v)
    o.sum().backward()  # d_o is one number, expanded
    expanded = q.grad.clone()
    q.grad = None
    heed.attention(q, k, v).backward(torch.ones_like(o))
    torch.testing.assert_close(q.grad, expanded, atol=1e-6, rtol=1e-6)
    o = heed.attention(q, k, v)
    d_o = torch.randn(*o.shape[:2], o.shape[3], o.shape[2], device=device).transpose(2, 3)
    o.backward(d_o)


def test_compiles_without_a_graph_break(device, compile_whole):
    q, k, v = (x.requires_grad_() for x in inputs(device))

    def step(q, k, v):
        return heed.attention(q * 2, k, v, causal=True, window=(5, 0)).relu()

    compiled = compile_whole(step)(q, k, v)
    torch.testing.assert_close(compiled, step(q, k, v))
    compiled.sum().backward()
    compiled_grad, q.grad = q.grad, None
    step(q, k, v).sum().backward()
    torch.testing.assert_close(q.grad, compiled_grad)


def test_the_operators_obey_the_rules_of_torch(device):
    q, k, v = (x.requires_grad_() for x in inputs(device))
    neutral = {name: value for name, (_, value) in heed.torch.NUMBERS.items()}
    absent = dict.fromkeys(heed.torch.TENSORS)
    trained = {**absent, "bias": torch.randn(2, 4, 19, 33, device=device, requires_grad=True),
               "sinks": torch.randn(4, device=device, requires_grad=True)}
    packed = {**absent, "cu_seqlens_q": torch.tensor([0, 19, 38], device=device).int(),
              "cu_seqlens_kv": torch.tensor([0, 33, 66], device=device).int()}
    limits = {**neutral, "max_seqlen_q": 19, "max_seqlen_kv": 33, "causal": True}
    for arrays, tensors, numbers in (((q, k, v), absent, neutral), ((q, k, v), trained, neutral), (
            [x.detach().flatten(0, 1).requires_grad_() for x in (q, k, v)], packed, limits)):
        torch.library.opcheck(torch.ops.heed.forward.default,
                              (*arrays, *tensors.values(), *numbers.values()))


def test_the_decode_operator_obeys_the_rules_of_torch(device):
    from heed import torch_decode
    q, k, v = inputs(device, torch.float16, q_len=1, dim=32, dim_v=32)
    numbers = [value for _, value in torch_decode.NUMBERS.values()]
    tensors = dict.fromkeys(torch_decode.TENSORS)
    tensors.update(k_new=torch.randn_like(k[:, :1]), v_new=torch.randn_like(v[:, :1]))
    lengths = torch.tensor([3, 30], device=device, dtype=torch.int32)
    torch.library.opcheck(torch.ops.heed.decode.default,
                          (q, k, v, lengths, *tensors.values(), *numbers))


def test_autocast(device):
    q, k, v = inputs(device)
    with torch.autocast(device, torch.bfloat16):
        assert heed.attention(q, k, v).dtype == torch.bfloat16


def test_dropout_follows_the_generator_of_torch(device):
    q, k, v = (x.requires_grad_() for x in inputs(device))
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        q.grad = None
        o = heed.attention(q, k, v, dropout_p=0.4)
        o.sum().backward()
        results.append((o, q.grad.clone()))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1])
    assert not torch.equal(results[0][0], heed.attention(q, k, v, dropout_p=0.4))


def test_kinds_of_calls_do_not_mix(device):
    q, k, v = inputs(device)
    with torch.no_grad():
        for options in ({}, {"causal": True}, {"scale": 0.1}, {"window": [3, 2]},
                        {"bias": torch.randn(33, device=device)}):
            for arrays in ((q, k, v), (q[:, :5], k, v), (q, k[:, ::2], v[:, ::2])):
                if "bias" in options and arrays[1].shape[1] != 33:
                    continue
                first = heed.attention(*arrays, **options)
                other = heed.attention(*(torch.randn_like(x) for x in arrays), **options)
                again, lse = heed.attention(*arrays, return_lse=True, **options)
                assert torch.equal(first, again) and not torch.equal(first, other)
                assert lse.shape == (2, 4, arrays[0].shape[1])


def test_errors_name_the_argument(device):
    q, k, v = inputs(device)
    with pytest.raises(heed.InvalidArgumentError, match="head_dim"):
        heed.attention(q, k[..., :8], v)
    with pytest.raises(TypeError, match="unexpected option 'colour'"):
        heed.attention(q, k, v, colour=1)
    with pytest.raises(ValueError, match="out: not while gradients"):
        heed.attention(q.requires_grad_(), k, v, out=torch.empty(2, 19, 4, 24, device=device))
    with pytest.raises(TypeError, match="meta"):
        heed.operations.run_attention(q.to("meta"), k, v, return_lse=False, out=None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_graph_replays_with_other_values():
    q, k, v = inputs("cuda", torch.bfloat16)
    with torch.no_grad():
        heed.attention(q, k, v)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = heed.attention(q, k, v)
        q.normal_()
        graph.replay()
        assert torch.equal(o, heed.attention(q, k, v))


def test_transforms_of_torch(device):
    q, k, v = inputs(device)
    bias = torch.randn(1, 4, 19, 33, device=device)

    def loss(q, k, v, bias):
        return heed.attention(q, k, v, bias=bias, causal=True).square().sum()

    leaves = [x.clone().requires_grad_() for x in (q, k, v, bias)]
    expected = torch.autograd.grad(loss(*leaves), leaves)
    gradients = torch.func.grad(loss, argnums=(0, 1, 2, 3))(q, k, v, bias)
    torch.testing.assert_close(gradients, expected, atol=1e-4, rtol=1e-4)
    many = torch.stack([q, q * 2, -q])
    mapped = torch.func.vmap(torch.func.grad(loss), in_dims=(0, None, None, None))(many, k, v, bias)
    for one, gradient in zip(many, mapped):
        torch.testing.assert_close(gradient, torch.func.grad(loss)(one, k, v, bias), atol=1e-4,
                                   rtol=1e-4)


def test_derivatives_that_heed_does_not_have_are_refused():
    q, k, v = inputs("cpu")

    def loss(q):
        return heed.attention(q, k, v).square().sum()

    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(loss, (q,), (q,))
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match="forward-mode"):
            loss(torch.autograd.forward_ad.make_dual(q, q))
    with pytest.raises(NotImplementedError):
        torch.func.grad(lambda x: torch.func.grad(loss)(x).sum())(q)
    leaf = q.clone().requires_grad_()
    gradient, = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(gradient.sum(), leaf)


def test_float32_gradients_under_autocast(device):
    q, k, v = (x.requires_grad_() for x in inputs(device))
    with torch.autocast(device, torch.bfloat16):
        heed.attention(q, k, v, causal=True).float().square().sum().backward()
    expected = torch.autograd.grad(heed.attention(q, k, v, causal=True).square().sum(), q)[0]
    assert q.grad.dtype == torch.float32
    # The pass rounds its inputs, P and dS to bfloat16, 2^-9 of each at most.
    assert (q.grad - expected).norm() < 2 ** -7 * expected.norm()


def test_number_that_equals_a_flag_of_an_earlier_call():
    q, k, v = inputs("cpu")
    heed.attention(q, k, v, causal=True)
    with pytest.raises(TypeError, match="causal = 1.0: must be True or False"):
        heed.attention(q, k, v, causal=1.0)


def test_workspaces_of_recorded_calls(monkeypatch):
    """As in a CUDA graph, where the workspace is a tensor: here of the CPU's kernels."""
    q, k, v = inputs("cpu")
    o, lse = heed.attention(q, k, v, return_lse=True)
    lengths = torch.tensor([30, 33], dtype=torch.int32)

    def results():
        gradients = heed.attention_backward(o, q, k, v, o, lse)
        return [heed.operations.run_attention(q, k, v, return_lse=False, out=None),
                heed.decode(q[:, :1], k, v, lengths), *gradients.values()]

    expected, planned = results(), []
    plan = heed.calls.planned_workspace_bytes
    monkeypatch.setattr(heed.arrays.TorchArrays, "is_capturing", lambda self, array: True)
    monkeypatch.setattr(heed.calls, "planned_workspace_bytes",
                        lambda *arguments: planned.append(plan(*arguments)) or planned[-1])
    for mine, other in zip(results(), expected):
        assert torch.equal(mine, other)
    assert len(planned) == 3 and max(planned) > 0

    call = prepared.find(prepared.kind_of(q, k, v, {}, True))
    monkeypatch.setattr(call, "raw_stream", lambda index: None)
    monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: True)
    assert torch.equal(prepared.run(call, q, k, v, {})[0], o)
    assert call.exec.workspace is None and call.exec.workspace_bytes == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_graph_of_a_training_step():
    q, k, v = (x.requires_grad_() for x in inputs("cuda", torch.bfloat16))

    def step():
        return torch.autograd.grad(heed.attention(q, k, v, causal=True).float().square().sum(),
                                   (q, k, v))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradients = step()
    with torch.no_grad():
        q.normal_()
    graph.replay()
    torch.testing.assert_close(gradients, step(), atol=1e-2, rtol=1e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_streams_are_those_of_torch():
    q, k, v = inputs("cuda", torch.float16, q_len=512, kv_len=512)
    expected = heed.attention(q, k, v)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            torch.cuda._sleep(10**7)
            late = q.clone()
            assert torch.equal(heed.attention(late, k, v), expected)
