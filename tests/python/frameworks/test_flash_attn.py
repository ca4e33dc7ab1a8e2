"""The drop-in for flash_attn and flash_attn_interface, by the tolerance rule of their own tests."""

import importlib
import inspect
import os
import random
import subprocess
import sys

import pytest
import torch

import heed
import heed.compat
from torch_reference import attention, check

heed.compat.install()

import flash_attn  # noqa: E402
import flash_attn_interface  # noqa: E402
from flash_attn.bert_padding import pad_input, unpad_input  # noqa: E402
from flash_attn.flash_attn_interface import (  # noqa: E402
    _flash_attn_backward, _flash_attn_forward, _get_block_size_n)
from flash_attn.layers.rotary import apply_rotary_emb  # noqa: E402


def sampled_cases(count):
    """A seeded sample of the grid that upstream tests."""
    draw = random.Random(20)
    for _ in range(count):
        causal, local = draw.choice([(False, False), (True, False), (False, True)])
        softcap = draw.choice([0.0, 0.0, 20.0])  # with dropout too, which upstream refuses
        yield {"dtype": draw.choice(["float16", "bfloat16"]),
               "dim": draw.choice([32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256]),
               "heads": draw.choice([(4, 4), (4, 1), (6, 2)]),
               "lengths": draw.choice([(113, 203), (128, 217), (113, 211), (108, 256), (256, 128),
                                       (1, 147), (200, 200)]),
               "causal": causal, "local": local, "softcap": softcap, "alibi": draw.random() < 0.3,
               "dropout_p": 0.17 if draw.random() < 0.3 else 0.0,
               "layout": draw.choice(["func", "kvpacked", "varlen", "strided", "sliced", "padded"])}


def make(case, device):
    (q_heads, kv_heads), (q_len, kv_len) = case["heads"], case["lengths"]
    dtype = getattr(torch, case["dtype"])

    def random_tensor(length, heads):
        if case["layout"] == "strided":
            return torch.randn(2, heads, length, case["dim"], device=device,
                               dtype=dtype).transpose(1, 2).requires_grad_()
        if case["layout"] == "sliced":
            larger = torch.randn(2, 2 * length, heads + 1, case["dim"] + 3, device=device,
                                 dtype=dtype)
            return larger[:, ::2, 1:, 3:].requires_grad_()
        return torch.randn(2, length, heads, case["dim"], device=device,
                           dtype=dtype).requires_grad_()

    options = {"causal": case["causal"]}
    if case["local"]:
        options["window_size"] = tuple(torch.randint(0, kv_len, (2,)))
    if case["softcap"]:
        options["softcap"] = case["softcap"]
    if case["alibi"]:
        options["alibi_slopes"] = torch.rand(q_heads, device=device) * 0.3
    return (random_tensor(q_len, q_heads), random_tensor(kv_len, kv_heads),
            random_tensor(kv_len, kv_heads)), options


def padding(length, device):
    """Valid tokens of the two sequences of a padded batch."""
    counts = torch.tensor([length, max(1, length * 3 // 5)], device=device)
    return torch.arange(length, device=device)[None] < counts[:, None]


def plain(case, q, k, v, keep=None, **rule):
    """attention() of the reference; of a padded batch sequence by sequence, zero where it pads."""
    if case["layout"] != "padded":
        return attention(q, k, v, keep=keep, **rule)
    q_counts, kv_counts = (padding(x.shape[1], q.device).sum(1).tolist() for x in (q, k))
    rows = []
    for b, (m, n) in enumerate(zip(q_counts, kv_counts)):
        kept = None if keep is None else keep[b:b + 1, :, :m, :n]
        out = attention(q[b:b + 1, :m], k[b:b + 1, :n], v[b:b + 1, :n], keep=kept, **rule)
        rows.append(torch.nn.functional.pad(out, (0, 0, 0, 0, 0, q.shape[1] - m)))
    return torch.cat(rows)


def call(case, q, k, v, options):
    (q_len, kv_len), p = case["lengths"], case["dropout_p"]
    if case["layout"] == "kvpacked":
        return flash_attn.flash_attn_kvpacked_func(q, torch.stack([k, v], dim=2), p, **options)
    if case["layout"] == "varlen":
        offsets = [torch.tensor([0, n, 2 * n], device=q.device, dtype=torch.int32)
                   for n in (q_len, kv_len)]
        out = flash_attn.flash_attn_varlen_func(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1),
                                                *offsets, q_len, kv_len, p, **options)
        return out.unflatten(0, (2, q_len))
    if case["layout"] == "padded":
        q_packed, indices, *q_rest = unpad_input(q, padding(q_len, q.device))
        k_packed, _, *k_rest = unpad_input(k, padding(kv_len, q.device))
        v_packed = unpad_input(v, padding(kv_len, q.device))[0]
        out = flash_attn.flash_attn_varlen_func(
            q_packed, k_packed, v_packed, q_rest[0], k_rest[0], q_rest[1], k_rest[1], p, **options)
        return pad_input(out, indices, 2, q_len)
    return flash_attn.flash_attn_func(q, k, v, p, **options)


@pytest.mark.parametrize("case", list(sampled_cases(60)), ids=lambda case: "-".join(
    str(value) for value in case.values()))
def test_outputs_and_gradients(device, case):
    (q, k, v), options = make(case, device)
    rule = {"causal": case["causal"], "softcap": case["softcap"],
            "alibi_slopes": options.get("alibi_slopes"),
            "window": tuple(map(int, options.get("window_size", (-1, -1))))}
    if case["dropout_p"]:
        torch.manual_seed(5)
        seed, offset = torch.randint(0, 2**62, (2,), device=device, dtype=torch.int64).tolist()
        keep = heed.dropout_mask((2, case["heads"][0], *case["lengths"]), case["dropout_p"],
                                 seed=seed, offset=offset)
        rule.update(keep=torch.from_numpy(keep).to(device),
                    dropout_p=round(case["dropout_p"] * 65536) / 65536)
    torch.manual_seed(5)
    out = call(case, q, k, v, options)
    reference = plain(case, q, k, v, **rule)
    low = plain(case, q, k, v, upcast=False, scales_k=True, **rule)
    check(out, reference, low)
    d_out = torch.randn_like(out)
    gradients = [torch.autograd.grad(x, (q, k, v), d_out) for x in (out, reference, low)]
    for ours, expected, torchs in zip(*gradients):
        check(ours, expected, torchs, multiple=3, absolute=1e-4)


def test_lse_conventions(device):
    q, k, v = (torch.randn(1, 5, 2, 32, device=device, dtype=torch.float16) for _ in range(3))
    _, lse, _ = flash_attn.flash_attn_func(q, k[:, :2], v[:, :2], causal=True,
                                           return_attn_probs=True)
    assert torch.isposinf(lse[..., :3]).all() and torch.isfinite(lse[..., 3:]).all()
    _, lse = flash_attn_interface.flash_attn_func(q, k[:, :2], v[:, :2], causal=True,
                                                  return_attn_probs=True)
    assert torch.isneginf(lse[..., :3]).all()


@pytest.mark.parametrize("dropout_p, lengths", [(0.0, (200, 200)), (0.17, (113, 203))])
def test_results_repeat_bit_for_bit(device, dropout_p, lengths):
    tensors = [torch.randn(3, length, 4, 64, device=device, dtype=torch.float16).requires_grad_()
               for length in (lengths[0], lengths[1], lengths[1])]
    d_out = torch.randn_like(tensors[0])
    first = None
    for _ in range(20):
        torch.manual_seed(1)
        out, lse, _ = flash_attn.flash_attn_func(*tensors, dropout_p, causal=True,
                                                 deterministic=True, return_attn_probs=True)
        results = (out, lse, *torch.autograd.grad(out, tensors, d_out))
        first = first or results
        for mine, other in zip(results, first):
            assert torch.equal(mine, other)


@pytest.mark.parametrize("dim, dim_v", [(64, 64), (192, 128), (64, 512)])
def test_flash_attention_3(device, dim, dim_v):
    q, k, v = (torch.randn(2, length, heads, width, device=device, dtype=torch.bfloat16)
               .requires_grad_() for length, heads, width in
               ((70, 6, dim), (90, 2, dim), (90, 2, dim_v)))
    options = {"causal": True, "softcap": 15.0}
    out = flash_attn_interface.flash_attn_func(q, k, v, num_splits=3, pack_gqa=True, **options)
    reference = attention(q, k, v, **options)
    low = attention(q, k, v, upcast=False, scales_k=True, **options)
    check(out, reference, low)
    d_out = torch.randn_like(out)
    gradients = [torch.autograd.grad(x, (q, k, v), d_out) for x in (out, reference, low)]
    for ours, expected, torchs in zip(*gradients):
        check(ours, expected, torchs, multiple=3, absolute=3e-4)
    offsets = [torch.tensor([0, n, 2 * n], device=device, dtype=torch.int32) for n in (70, 90)]
    used = torch.tensor([90, 50], device=device, dtype=torch.int32)
    packed = flash_attn_interface.flash_attn_varlen_func(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), *offsets, 70, 90, seqused_k=used,
        **options)
    operands = q[1:], k[1:, :50], v[1:, :50]
    check(packed[None, 70:], attention(*operands, **options),
          attention(*operands, upcast=False, scales_k=True, **options))


def test_queries_of_values(device):
    """FlashAttention-3's qv: scores q k + qv v."""
    q, k = (torch.randn(2, 20, heads, 64, device=device, dtype=torch.float16) for heads in (4, 1))
    qv, v = (torch.randn(2, 20, heads, 128, device=device, dtype=torch.float16)
             for heads in (4, 1))
    out = flash_attn_interface.flash_attn_func(q, k, v, qv=qv, causal=True)
    operands = torch.cat([q, qv], -1), torch.cat([k, v], -1), v
    check(out, attention(*operands, causal=True),
          attention(*operands, causal=True, upcast=False, scales_k=True))


def test_packed_queries_keys_and_values_of_flash_attention_3(device):
    qkv = torch.randn(2, 30, 3, 4, 32, device=device, dtype=torch.float16)
    expected = flash_attn.flash_attn_func(*qkv.unbind(2), causal=True)
    for packed, heads in ((qkv, None), (qkv.flatten(2, 3), 4)):
        assert torch.equal(expected, flash_attn_interface.flash_attn_qkvpacked_func(
            packed, causal=True, num_heads_q=heads))


def test_probabilities_for_debugging(device):
    q, k, v = (torch.randn(2, 20, 2, 32, device=device, dtype=torch.float16) for _ in range(3))
    out, _, signed = flash_attn.flash_attn_func(q, k, v, 0.3, return_attn_probs=True)
    p = signed.float().clamp(min=0) / 0.7
    torch.testing.assert_close(out.float(), torch.einsum("bhij,bjhd->bihd", p, v.float()),
                               atol=5e-3, rtol=5e-3)
    assert _get_block_size_n(device, 32, True, False) >= 20


def test_private_functions_write_into_views(device):
    qkv = torch.randn(2, 30, 3, 4, 64, device=device, dtype=torch.float16)
    q, k, v = qkv.unbind(2)
    scale = 64 ** -0.5
    out, lse, _, rng_state = _flash_attn_forward(q, k, v, 0.0, scale, True, -1, -1, 0.0, None,
                                                 False)
    d_qkv = torch.full_like(qkv, float("nan"))
    d_out = torch.randn_like(out)
    _flash_attn_backward(d_out, q, k, v, out, lse, *d_qkv.unbind(2), 0.0, scale, True, -1, -1, 0.0,
                         None, False, rng_state)
    leaf = qkv.detach().requires_grad_()
    flash_attn.flash_attn_qkvpacked_func(leaf, causal=True).backward(d_out)
    torch.testing.assert_close(d_qkv, leaf.grad, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
def test_kvcache_appends_rotates_and_attends(paged, interleaved):
    batch, slots, new = 3, 64, 2
    k_cache, v_cache = (torch.randn(batch, slots, 2, 32) for _ in range(2))
    q = torch.randn(batch, new, 4, 32)
    k, v = (torch.randn(batch, new, 2, 32) for _ in range(2))
    lengths = torch.tensor([5, 30, 62], dtype=torch.int32)
    angles = torch.rand(slots, 8) * 6
    cos, sin = angles.cos(), angles.sin()
    old_k, old_v = k_cache.clone(), v_cache.clone()
    pools, extra = (k_cache, v_cache), {}
    if paged:
        order = torch.randperm(batch * 4).to(torch.int32)
        pools = tuple(torch.empty(batch * 4, 16, 2, 32) for _ in range(2))
        for pool, cache in zip(pools, (k_cache, v_cache)):
            pool[order.long()] = cache.reshape(batch * 4, 16, 2, 32)
        extra["block_table"] = order.view(batch, 4)
    out = flash_attn.flash_attn_with_kvcache(q, *pools, k, v, rotary_cos=cos, rotary_sin=sin,
                                             rotary_interleaved=interleaved, cache_seqlens=lengths,
                                             causal=True, **extra)
    turned_q, turned_k = (apply_rotary_emb(x, cos, sin, interleaved=interleaved,
                                           seqlen_offsets=lengths) for x in (q, k))
    for b, length in enumerate(lengths.tolist()):
        keys = torch.cat([old_k[b, :length], turned_k[b]])[None]
        values = torch.cat([old_v[b, :length], v[b]])[None]
        torch.testing.assert_close(out[b], attention(turned_q[b:b + 1], keys, values,
                                                     causal=True)[0], atol=1e-5, rtol=1e-5)
        if not paged:
            torch.testing.assert_close(k_cache[b, length:length + new], turned_k[b])


def test_combine():
    partial, lse = torch.randn(3, 2, 4, 5, 32), torch.randn(3, 2, 4, 5)
    out, total = flash_attn_interface.flash_attn_combine(partial, lse)
    torch.testing.assert_close(out, (partial * torch.softmax(lse, 0)[..., None]).sum(0))
    torch.testing.assert_close(total, torch.logsumexp(lse, 0).transpose(1, 2))


def test_padding_and_its_inverse():
    x = torch.randn(2, 5, 3, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]])
    packed, indices, offsets, longest, used = unpad_input(x, mask)
    assert offsets.tolist() == [0, 2, 6] and longest == 4 and used.tolist() == [2, 4]
    pad_input(packed, indices, 2, 5).sum().backward()
    assert torch.equal(x.grad, mask[..., None].expand_as(x).float())


def test_probabilities_of_packed_sequences(device):
    q, k, v = (torch.randn(25, 2, 32, device=device, dtype=torch.float16) for _ in range(3))
    offsets = torch.tensor([0, 20, 25], device=device, dtype=torch.int32)
    out, _, signed = flash_attn.flash_attn_varlen_func(q, k, v, offsets, offsets, 20, 20, 0.3,
                                                       causal=True, return_attn_probs=True)
    p = signed.float().clamp(min=0) / 0.7
    for b, rows in enumerate((slice(0, 20), slice(20, 25))):
        n = rows.stop - rows.start
        torch.testing.assert_close(
            out[rows].float(), torch.einsum("hij,jhd->ihd", p[b, :, :n, :n], v[rows].float()),
            atol=5e-3, rtol=5e-3)


def test_programs_see_what_is_installed():
    from importlib import metadata
    assert metadata.version("flash-attn") == metadata.version("flash_attn") == "2.8.3"
    assert metadata.packages_distributions()["flash_attn_interface"] == ["flash-attn-3"]
    heed.compat.uninstall()
    try:
        with pytest.raises(metadata.PackageNotFoundError):
            metadata.version("flash-attn-3")
    finally:
        heed.compat.install()


def test_install_does_not_replace_a_loaded_package(monkeypatch):
    other = type(sys)("flash_attn")
    other.__file__ = "/elsewhere/flash_attn/__init__.py"
    monkeypatch.setitem(sys.modules, "flash_attn", other)
    with pytest.raises(RuntimeError, match="/elsewhere"):
        heed.compat.install()


def test_other_parts_of_an_installed_flash_attn_are_found(tmp_path):
    for folder in ("flash_attn", "flash_attn/cute"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("name = 'installed'\n")
    program = """
import heed.compat
heed.compat.install()
import flash_attn, flash_attn.cute
from flash_attn_3 import flash_attn_interface
assert flash_attn.cute.name == "installed" and not hasattr(flash_attn, "name")
assert flash_attn.flash_attn_func.__module__.startswith("heed.compat")
assert flash_attn_interface.flash_attn_combine.__module__.startswith("heed.compat")
"""
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            env={**os.environ, "PYTHONPATH": path})
    assert result.returncode == 0, result.stderr


RULE = "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, " \
    "alibi_slopes=None, deterministic=False, return_attn_probs=False"
OFFSETS = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
DESCALES = "q_descale=None, k_descale=None, v_descale=None"
SIGNATURES = {
    flash_attn.flash_attn_func: f"q, k, v, {RULE}",
    flash_attn.flash_attn_qkvpacked_func: f"qkv, {RULE}",
    flash_attn.flash_attn_kvpacked_func: f"q, kv, {RULE}",
    flash_attn.flash_attn_varlen_func: f"q, k, v, {OFFSETS}, {RULE}, block_table=None",
    flash_attn.flash_attn_varlen_qkvpacked_func: f"qkv, cu_seqlens, max_seqlen, {RULE}",
    flash_attn.flash_attn_varlen_kvpacked_func: f"q, kv, {OFFSETS}, {RULE}",
    flash_attn.flash_attn_with_kvcache:
        "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, "
        "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, block_table=None, "
        "softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
        "rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False",
    _flash_attn_forward:
        "q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, "
        "alibi_slopes, return_softmax",
    _flash_attn_backward:
        "dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal, "
        "window_size_left, window_size_right, softcap, alibi_slopes, deterministic, "
        "rng_state=None",
    flash_attn_interface.flash_attn_func:
        f"q, k, v, softmax_scale=None, causal=False, qv=None, {DESCALES}, window_size=(-1, -1), "
        "attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, "
        "sm_margin=0, return_attn_probs=False",
    flash_attn_interface.flash_attn_varlen_func:
        f"q, k, v, {OFFSETS}, seqused_q=None, seqused_k=None, softmax_scale=None, causal=False, "
        f"qv=None, {DESCALES}, window_size=(-1, -1), attention_chunk=0, softcap=0.0, "
        "num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False",
    flash_attn_interface.flash_attn_with_kvcache:
        "q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, "
        "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, page_table=None, "
        "cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None, "
        f"{DESCALES}, softmax_scale=None, causal=False, window_size=(-1, -1), "
        "attention_chunk=0, softcap=0.0, rotary_interleaved=True, scheduler_metadata=None, "
        "num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False",
    flash_attn_interface.flash_attn_combine: "out_partial, lse_partial, out=None, out_dtype=None",
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__qualname__)
def test_signatures_are_those_of_upstream(function):
    assert str(inspect.signature(function)) == f"({SIGNATURES[function]})"


def test_other_modules_of_the_namespace_are_not_answered_for():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("flash_attn.cute")
