#!/usr/bin/env python3
"""Cases, bars and merged tables of bench/compare_gpu.py, on made-up numbers and without a GPU."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
from gpu.backward_features import backward_feature_cases  # noqa: E402
from gpu.cases import Case, judge, preset_cases  # noqa: E402
from gpu.features import (BATCH, LENGTH, Burst, feature_cases, measure_pairs,  # noqa: E402
                          results_of)
from gpu.merge import merge, table  # noqa: E402
from gpu.plots import draw, panels  # noqa: E402


def record(ratios, card="card"):
    """A call in which heed ran at 100 TFLOP/s beside peers of 100 / ratio."""
    cases = []
    for at, (name, (peer, ratio, bar)) in enumerate(ratios.items()):
        cases.append({"case": name, "op": "forward", "dtype": "bfloat16", "head_dim": 64,
                      "length": 1024 << at, "causal": False, "kernel": "k",
                      "tflops": {"heed": 100.0, peer: 100.0 / ratio},
                      "ratio": {"heed": 1.0, peer: ratio},
                      "bar": bar and {"peer": peer, "ratio": bar, "reached": ratio >= bar}})
    return {"card": card, "matmul_tflops": 200.0, "cases": cases}


class BenchGpu(unittest.TestCase):
    def test_presets_have_every_cell_of_their_tables(self):
        for preset, cells in (("hopper-forward", 36), ("hopper-backward", 30), ("sm80", 60 + 24)):
            cases = preset_cases(preset)
            self.assertEqual(sum(bool(case.bar) for case in cases), cells, preset)
            self.assertEqual(len({case.name for case in cases}), len(cases), preset)
        bars = {case.name: case.bar["ratio"] for case in preset_cases("hopper-forward") if case.bar}
        self.assertEqual(bars["forward bfloat16 d64 full S8192"], 1.25)
        self.assertEqual(bars["forward bfloat16 d128 causal S512"], 1.0)
        self.assertEqual(bars["forward bfloat16 d256 causal S16384"], 1.12)

    def test_work_is_that_of_visible_pairs(self):
        full, causal = (Case("forward", "bfloat16", 128, 4096, mask) for mask in (False, True))
        self.assertEqual(full.flops, 4 * 4 * 16 * 4096**2 * 128)
        self.assertEqual(causal.flops * 2, full.flops)

    def test_features_are_compared_with_plain_calls_by_visible_pairs(self):
        cases = {case.name: case for case in feature_cases()}
        self.assertEqual(len(cases), 2 * 19)
        self.assertEqual(sum(case.feature.bar > 0 for case in cases.values()), 2 * 17)
        pairs = {name: case.visible_pairs for name, case in cases.items()}
        self.assertEqual(pairs["d64 plain"], LENGTH**2)
        self.assertEqual(pairs["d64 bias causal"], LENGTH * (LENGTH + 1) // 2)
        self.assertEqual(pairs["d128 window 1024 left"], LENGTH * 1025 - 1024 * 1025 // 2)
        self.assertEqual(cases["d128 plain"].flops, 4 * BATCH * 16 * LENGTH**2 * 128)

        class Call:
            kernel_id = "k"

        chosen = ("d64 plain", "d64 window 512 each", "d64 softcap 50")
        calls = {name: (cases[name], Call) for name in chosen}
        per_ms = pairs["d64 window 512 each"] / pairs["d64 plain"]
        bursts = lambda ms, slowdown: [(Burst(base), Burst(base * ms * factor, 1500))
                                       for base, factor in zip((1.0, 9.0, 2.0), slowdown)]
        pairs = {"d64 plain": bursts(1.0, (1, 1, 1)),
                 "d64 window 512 each": bursts(per_ms / 0.9, (1, 1, 3)),
                 "d64 softcap 50": bursts(1 / 0.8, (2, 1, 1))}
        with contextlib.redirect_stdout(io.StringIO()):
            results = results_of(calls, pairs, dict.fromkeys(chosen))  # of unchecked cases
        self.assertEqual([round(result["ratio"], 3) for result in results], [1.0, 0.9, 0.8])
        self.assertEqual([result["bar"] and result["bar"]["reached"] for result in results],
                         [None, True, False])
        self.assertEqual([result["sm_mhz"]["median"] for result in results], [1500] * 3)
        self.assertIsNone(results[0]["baseline_sm_mhz"])

    def test_cases_and_their_baselines_are_timed_in_turns(self):
        order = []
        pairs = measure_pairs(lambda: order.append("base") or "base",
                              lambda: order.append("case") or "case", 3)
        self.assertEqual(pairs, [("base", "case")] * 3)
        self.assertEqual(order, ["base", "case"] * 2 + ["case", "base", "base", "case"])

    def test_backward_features_have_every_cell_and_the_bar_of_a_fixed_order(self):
        cases = {case.name: case for case in backward_feature_cases()}
        self.assertEqual(len(cases), 3 * 3 * 13)
        bars = {name for name, case in cases.items() if case.feature.bar}
        self.assertEqual(len(bars), 3 * 3 * 2)
        self.assertTrue(all("fixed order" in name for name in bars))
        self.assertTrue(all(case.baseline in cases for case in cases.values()))
        self.assertEqual(cases["d256 plain S1024"].flops, 10 * 16 * 8 * 1024**2 * 256)
        self.assertEqual(cases["d64 fixed order causal S1024"].visible_pairs, 1024 * 1025 // 2)
        self.assertEqual(cases["d64 fixed order causal S1024"].baseline, "d64 causal S1024")

    def test_bar_without_its_peer_is_not_judged(self):
        case = Case("forward", "bfloat16", 64, 1024, False, {"peer": "cudnn", "ratio": 1.1})
        self.assertIsNone(judge(case, {"heed": 1.0, "flash": 2.0}))
        self.assertTrue(judge(case, {"cudnn": 1.1})["reached"])
        self.assertFalse(judge(case, {"cudnn": 1.09})["reached"])

    def test_bar_holds_in_two_calls_only(self):
        first = record({"a": ("cudnn", 1.2, 1.1), "b": ("cudnn", 1.2, 1.1),
                        "c": ("flash", 2, None)})
        second = record({"a": ("cudnn", 1.15, 1.1), "b": ("cudnn", 1.05, 1.1),
                         "c": ("flash", 2, None), "d": ("flash", 3, 1.0)})
        rows = {row["case"]: row for row in merge(first, second)}
        self.assertEqual({case: row["holds"] for case, row in rows.items()},
                         {"a": True, "b": False, "c": None})
        self.assertEqual(rows["a"]["percent"], [50.0, 50.0])
        self.assertIn("| b | 100 / 100 | 50 / 50 | 1.200 / 1.050 cudnn | 1.10 | MISSED |",
                      table(list(rows.values())))
        with self.assertRaises(ValueError):
            merge(first, record({}, card="another"))

    def test_gate_fails_when_a_bar_does_not_hold(self):
        with tempfile.TemporaryDirectory() as scratch:
            paths = []
            for at, ratio in enumerate((1.2, 1.05)):
                paths.append(pathlib.Path(scratch) / f"{at}.json")
                paths[-1].write_text(json.dumps(record({"a": ("cudnn", ratio, 1.1)})))
            run = lambda *arguments: subprocess.run(
                [sys.executable, BENCH / "gpu/merge.py", *arguments], capture_output=True,
                text=True, check=False).returncode
            self.assertEqual(run(*paths, "--gate"), 1)
            self.assertEqual(run(*paths), 0)
            self.assertEqual(run(paths[0], paths[0], "--gate"), 0)

    def test_plots_show_what_has_several_lengths(self):
        data = record({"a": ("cudnn", 1.2, 1.1), "b": ("cudnn", 1.2, 1.1)})
        data["cases"].append(dict(data["cases"][0], head_dim=128))
        shown = panels(data)
        self.assertEqual(list(shown), [("forward", "bfloat16")])
        self.assertEqual(list(shown["forward", "bfloat16"]), [(64, False)])
        with tempfile.TemporaryDirectory() as scratch:
            for path in draw(data, f"{scratch}/x.json"):  # none without matplotlib
                self.assertGreater(path.stat().st_size, 1000)


if __name__ == "__main__":
    unittest.main()
