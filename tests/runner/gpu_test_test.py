#!/usr/bin/env python3
"""scripts/gpu_test.py on programs that only pretend: what it runs, merges and calls a failure."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/gpu_test.py"
# Reports one test, and as many cases of row "a" as its shard has; PLAN decides the rest.
PROGRAM = """#!{python} -S
import json, os, sys
name = os.path.basename(sys.argv[0])
index, count = map(int, (os.environ.get("HEED_TEST_SHARD") or "0/1").split("/"))
plan = json.loads(os.environ["PLAN"])
if plan.get("no_device"):
    sys.exit(77)
options = dict(flag.split("=", 1) for flag in sys.argv[1:])
generated = "GeneratedCases" in options["--gtest_filter"] and "-" not in options["--gtest_filter"]
failed = plan.get("fails") == [name, index] and generated
if generated and name in ("gpu_forward", "gpu_backward"):
    num_cases = len(range(index, int(os.environ["HEED_GPU_CASES"]), count))
    print(f"largest error / bound 0.{{index + 1}} in case{{index}}")
    print(f"checked  a{{os.environ['HEED_GPU_KERNEL']}}: {{num_cases}} cases")
    print(f"checked  b: {{int(index == 1 and plan.get('reaches_b', True))}} cases")
if "--gtest_output" in options:
    case = {{"name": "T", "status": "RUN", "result": "COMPLETED"}}
    with open(options["--gtest_output"].split(":", 1)[1], "w") as file:
        json.dump({{"failures": int(failed),
                   "testsuites": [{{"name": name, "testsuite": [case]}}]}}, file)
sys.exit(int(failed))
"""
# Fails at its own work in the first run of the part that the plan names, or in every one.
SANITIZER = """#!{python} -S
import json, os, sys
tool, program = sys.argv[sys.argv.index("--tool") + 1], sys.argv[-2]
name = " ".join([tool, os.path.basename(program), os.environ["HEED_TEST_SHARD"]])
mark = sys.argv[0] + name.replace("/", "-").replace(" ", "-")
plan = json.loads(os.environ["PLAN"])
if name == plan.get("faulty") and (plan.get("always") or not os.path.exists(mark)):
    open(mark, "w").close()
    print("========= Internal Sanitizer Error: it lost track")
    sys.exit(99)
print("========= ERROR SUMMARY: 0 errors")
"""
PROGRAMS = ["gpu_hopper", "gpu_forward", "gpu_backward", "gpu_streams", "gpu_limits", "gpu_helpers",
            "gpu_flash_attention_v2", "gpu_decode", "gpu_session", "gpu_session_graph",
            "gpu_wide_decode", "gpu_decode_pack"]


class GpuTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.build = pathlib.Path(self.scratch.name)
        for name in PROGRAMS:
            self.add_program(name, PROGRAM.format(python=sys.executable))

    def add_program(self, name, text):
        (self.build / name).write_text(text)
        (self.build / name).chmod(0o755)

    def run_script(self, plan, *options):
        """(exit code, output, record)"""
        path = self.build / "result.json"
        process = subprocess.run(
            [sys.executable, SCRIPT, "--build", self.build, "--json", path, "--jobs", "3",
             "--sanitizer-cases", "0", *options],
            env=dict(os.environ, PLAN=json.dumps(plan)), capture_output=True, text=True,
            check=False)
        return process.returncode, process.stdout, json.loads(path.read_text())

    def test_counts_of_shards_add_up(self):
        code, output, record = self.run_script({}, "--cases", "500")
        self.assertEqual(code, 0, output)
        forward = next(test for test in record["tests"] if test["test"] == "gpu_forward")
        self.assertEqual(forward["checked"], {"a": 500, "b": 1})
        self.assertEqual(forward["largest_error_over_bound"], 0.3)
        self.assertEqual(forward["worst_case"], "case2")
        self.assertEqual([part["part"] for part in forward["parts"]],
                         ["0/3", "1/3", "2/3", "rest"])

    def sanitize(self, plan):
        folder = self.build / "bin"
        folder.mkdir()
        sanitizer = folder / "compute-sanitizer"
        sanitizer.write_text(SANITIZER.format(python=sys.executable))
        sanitizer.chmod(0o755)
        path = os.pathsep.join([str(folder), os.environ["PATH"]])
        with unittest.mock.patch.dict(os.environ, PATH=path):
            return self.run_script(plan, "--sanitizer-cases", "2")

    def test_sanitizer_that_failed_itself_runs_again(self):
        code, output, record = self.sanitize({"faulty": "racecheck gpu_decode 1/2"})
        self.assertEqual(code, 0, output)
        again = [run["part"] for run in record["sanitizers"] if run["attempts"] == 2]
        self.assertEqual(again, ["1/2"])

    def test_sanitizer_that_keeps_failing_fails(self):
        code, _, record = self.sanitize({"faulty": "racecheck gpu_decode 1/2", "always": True})
        self.assertEqual(code, 1)
        self.assertEqual(record["failed"], ["racecheck gpu_decode 1/2"])

    def test_one_failed_shard_fails(self):
        code, output, record = self.run_script({"fails": ["gpu_backward", 2]})
        self.assertEqual(code, 1)
        self.assertEqual(record["failed"], ["gpu_backward"])
        self.assertIn("---- gpu_backward 2/3", output)

    def test_row_that_no_shard_reached_fails(self):
        code, _, record = self.run_script({"reaches_b": False}, "--cases", "300")
        self.assertEqual(code, 1)
        self.assertEqual(record["failed"], ["gpu_backward: no case reached b",
                                            "gpu_forward: no case reached b"])
        code, _, _ = self.run_script({"reaches_b": False}, "--cases", "50")
        self.assertEqual(code, 0)

    def test_arch_chooses_rows(self):
        code, output, record = self.run_script({}, "--arch", "sm90")
        self.assertEqual(code, 0, output)
        self.assertIn("a.sm90.", record["tests"][0]["checked"])

    def test_machine_without_device_fails(self):
        code, output, _ = self.run_script({"no_device": True})
        self.assertEqual(code, 1)
        self.assertIn("no CUDA device", output)

    def test_training_must_lower_the_loss(self):
        self.add_program("heed_example_train", "#!/bin/sh\necho 'step 0  loss 0.5'\n"
                                               "echo 'step 9  loss 0.1'; echo 'the loss fell'\n")
        code, output, record = self.run_script({})
        self.assertEqual(code, 0, output)
        self.assertIn([0.5, 0.1], [test.get("losses") for test in record["tests"]])
        self.add_program("heed_example_train", "#!/bin/sh\necho 'step 0  loss 0.5'\n"
                                               "echo 'step 9  loss nan'\n")
        code, _, record = self.run_script({})
        self.assertEqual(code, 1)
        self.assertEqual(record["failed"], ["heed_example_train"])

    def test_generation_must_agree(self):
        self.add_program("heed_example_generate", "#!/bin/sh\necho '1 2.0'\n")
        code, output, record = self.run_script({})
        self.assertEqual(code, 1, output)
        self.assertEqual(record["failed"], ["heed_example_generate"])


if __name__ == "__main__":
    unittest.main()
