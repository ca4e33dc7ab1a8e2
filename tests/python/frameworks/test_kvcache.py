"""flash_attn_with_kvcache of both interfaces on a seeded sample of the grid that upstream tests, by
its rules: the output's error, the rotated keys within 1e-3, the values exactly."""

import random

import pytest
import torch

import heed.compat
from torch_reference import attention, check

heed.compat.install()

import flash_attn  # noqa: E402
import flash_attn_interface  # noqa: E402
from flash_attn.layers.rotary import apply_rotary_emb  # noqa: E402

BATCH, SLOTS = 3, 512


def sampled_cases(count):
    draw = random.Random(7)
    for _ in range(count):
        page = draw.choice([None, None, 16, 256])
        causal, local = draw.choice([(False, False), (True, False), (True, True), (False, True)])
        new = draw.choice([0, 0, 1, 5])
        queries = new + draw.choice([0, 0, 2]) if new else draw.choice([1, 3, 128])
        yield {"dtype": draw.choice(["float16", "bfloat16"]),
               "dim": draw.choice([32, 59, 64, 80, 128, 256]),
               "heads": draw.choice([(4, 4), (6, 1), (6, 2)]), "page": page, "new": new,
               "queries": queries, "causal": causal, "local": local,
               "rotary": draw.choice([0.0, 0.5, 1.0]) if new else 0.0,
               "interleaved": draw.random() < 0.5, "alibi": draw.random() < 0.3,
               "leftpad": page is None and draw.random() < 0.3,
               "batch_idx": page is None and draw.random() < 0.4,
               "num_splits": draw.choice([0, 0, 1, 3])}


class Caches:
    """Keys and values as the call gets them, and as rows [sequence, slots, heads, dim]."""

    def __init__(self, case, device):
        kv_heads, dtype = case["heads"][1], getattr(torch, case["dtype"])
        num_rows = 5 if case["batch_idx"] else BATCH
        shape = (num_rows, SLOTS, kv_heads, case["dim"])
        self.passed = [torch.randn(shape, device=device).to(dtype) for _ in range(2)]
        self.options = {}
        self.order = torch.arange(BATCH)
        if case["batch_idx"]:
            self.order = torch.randperm(num_rows)[:BATCH]
            self.options["cache_batch_idx"] = self.order.to(device, torch.int32)
        self.table = None
        if case["page"]:
            num_pages = BATCH * SLOTS // case["page"]
            order = torch.randperm(num_pages + 3)[:num_pages]
            self.table = order.view(BATCH, -1)
            self.options["block_table"] = self.table.to(device, torch.int32)
            self.passed = [torch.randn(num_pages + 3, case["page"], kv_heads, case["dim"],
                                       device=device).to(dtype) for _ in range(2)]

    def rows(self, which, sequence):
        passed = self.passed[which]
        if self.table is None:
            return passed[self.order[sequence]].clone()
        return passed[self.table[sequence]].flatten(0, 1)


def name_of(case):
    return "-".join(f"{key}{value}" for key, value in case.items() if value not in (False, 0, None))


@pytest.mark.parametrize("case", list(sampled_cases(48)), ids=name_of)
def test_flash_attn_with_kvcache(device, case):
    (q_heads, kv_heads), dim, new = case["heads"], case["dim"], case["new"]
    dtype = getattr(torch, case["dtype"])
    caches = Caches(case, device)
    q = torch.randn(BATCH, case["queries"], q_heads, dim, device=device).to(dtype)
    k_new, v_new = (torch.randn(BATCH, new, kv_heads, dim, device=device).to(dtype)
                    if new else None for _ in range(2))
    lengths = torch.randint(case["queries"], SLOTS - new + 1, (BATCH,), device=device,
                            dtype=torch.int32)
    options = dict(caches.options, causal=case["causal"], num_splits=case["num_splits"])
    if case["local"]:
        options["window_size"] = tuple(torch.randint(0, SLOTS // 2, (2,)))
    if case["alibi"]:
        options["alibi_slopes"] = torch.rand(q_heads, device=device) * 0.3
    leftpad = [0] * BATCH
    if case["leftpad"]:
        leftpad = [random.Random(b).randrange(int(lengths[b])) for b in range(BATCH)]
        options["cache_leftpad"] = torch.tensor(leftpad, device=device, dtype=torch.int32)
    turned_q, turned_k = q, k_new
    if case["rotary"]:
        angles = torch.rand(SLOTS, int(case["rotary"] * dim) // 16 * 8, device=device) * 6
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        options.update(rotary_cos=cos, rotary_sin=sin, rotary_interleaved=case["interleaved"])
        turn = {"interleaved": case["interleaved"]}
        turned_k = apply_rotary_emb(k_new, cos, sin, seqlen_offsets=lengths, **turn)
        if case["causal"] or case["local"]:
            turned_q = apply_rotary_emb(q, cos, sin, seqlen_offsets=lengths, **turn)
        else:  # every query stands where the first of them does
            turned_q = apply_rotary_emb(q.flatten(1, 2)[:, None], cos, sin, seqlen_offsets=lengths,
                                        **turn).view_as(q)
    before = [[caches.rows(which, b) for b in range(BATCH)] for which in range(2)]
    out, lse = flash_attn.flash_attn_with_kvcache(
        q, *caches.passed, k_new, v_new, cache_seqlens=lengths, return_softmax_lse=True, **options)
    window = tuple(map(int, options.get("window_size", (-1, -1))))
    rule = {"causal": case["causal"], "window": window, "alibi_slopes": options.get("alibi_slopes")}
    for b, length in enumerate(lengths.tolist()):
        keys, values = (torch.cat([rows[b][:length], added[b]]) if new else rows[b][:length]
                        for rows, added in zip(before, (turned_k, v_new)))
        operands = turned_q[b:b + 1], keys[None, leftpad[b]:], values[None, leftpad[b]:]
        check(out[b:b + 1], attention(*operands, **rule),
              attention(*operands, upcast=False, scales_k=True, **rule),
              multiple=5 if case["alibi"] else 3)
        assert lse[b].shape == (q_heads, case["queries"])
        if new:
            torch.testing.assert_close(caches.rows(0, b)[length:length + new], turned_k[b],
                                       atol=1e-3, rtol=1e-2)
            assert torch.equal(caches.rows(1, b)[length:length + new], v_new[b])
        for which in range(2):  # nothing else was written
            assert torch.equal(caches.rows(which, b)[:length], before[which][b][:length])
            assert torch.equal(caches.rows(which, b)[length + new:],
                               before[which][b][length + new:])


@pytest.mark.parametrize("page", [None, 16])
def test_packed_queries_of_flash_attention_3(device, page):
    case = {"dtype": "float16", "dim": 64, "heads": (6, 2), "page": page, "batch_idx": not page}
    caches = Caches(case, device)
    counts, lengths = [3, 1, 40], [17, 512, 100]
    q = torch.randn(sum(counts), 6, 64, device=device, dtype=torch.float16)
    offsets = torch.tensor([0, 3, 4, 44], device=device, dtype=torch.int32)
    if page:
        caches.options["page_table"] = caches.options.pop("block_table")
    out, lse, *_ = flash_attn_interface.flash_attn_with_kvcache(
        q, *caches.passed, cu_seqlens_q=offsets, max_seqlen_q=40, causal=True,
        cache_seqlens=torch.tensor(lengths, device=device, dtype=torch.int32),
        return_softmax_lse=True, **caches.options)
    assert lse.shape == (6, 44)
    for b, rows in enumerate(torch.split(torch.arange(44, device=device), counts)):
        operands = [q[rows][None]] + [caches.rows(which, b)[None, :lengths[b]]
                                      for which in range(2)]
        check(out[rows][None], attention(*operands, causal=True),
              attention(*operands, causal=True, upcast=False, scales_k=True))


def test_fallbacks_say_what_is_missing():
    q = torch.randn(1, 2, 2, 32)
    with pytest.raises(NotImplementedError, match="attention_chunk: .*mask"):
        flash_attn_interface.flash_attn_func(q, q, q, attention_chunk=4)
    with pytest.raises(NotImplementedError, match="k_descale: .*fp8"):
        flash_attn_interface.flash_attn_with_kvcache(q, q, q, k_descale=torch.ones(1, 2))
    with pytest.raises(ValueError, match="rotary_cos: needs the new keys"):
        flash_attn.flash_attn_with_kvcache(q, q, q, rotary_cos=torch.ones(2, 8),
                                           rotary_sin=torch.ones(2, 8))


def test_compiles_without_a_graph_break(device, compile_whole):
    options = {"device": device, "dtype": torch.float16}
    caches = [torch.randn(2, 64, 2, 32, **options) for _ in range(2)]
    q, (k, v) = torch.randn(2, 1, 4, 32, **options), torch.randn(2, 2, 1, 2, 32, **options)
    lengths = torch.tensor([3, 40], device=device, dtype=torch.int32)

    def step(k_cache, v_cache):
        return flash_attn.flash_attn_with_kvcache(q * 2, k_cache, v_cache, k, v,
                                                  cache_seqlens=lengths, causal=True).relu()

    copies = [cache.clone() for cache in caches]
    expected = step(*copies)
    compiled = compile_whole(step)(*caches)
    torch.testing.assert_close(compiled, expected)
    assert torch.equal(caches[0], copies[0]) and torch.equal(caches[1], copies[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_graph_appends_at_the_lengths_of_its_replay():
    k_cache, v_cache = (torch.randn(2, 64, 2, 64, device="cuda", dtype=torch.float16)
                        for _ in range(2))
    q, k, v = (torch.randn(2, 1, heads, 64, device="cuda", dtype=torch.float16)
               for heads in (4, 2, 2))
    lengths = torch.tensor([3, 40], device="cuda", dtype=torch.int32)
    arguments = {"cache_seqlens": lengths, "causal": True}
    flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, **arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, **arguments)
    for _ in range(3):
        lengths += 1
        k.normal_()
        before = k_cache.clone()
        expected = flash_attn.flash_attn_with_kvcache(q, before, v_cache.clone(), k, v,
                                                      **arguments)
        graph.replay()
        assert torch.equal(out, expected) and torch.equal(k_cache, before)
