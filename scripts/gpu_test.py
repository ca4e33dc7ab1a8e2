#!/usr/bin/env python3
"""Runs the GPU tests of a build, then a part of them under compute-sanitizer; records the result.

    scripts/gpu_test.py --build build/release --json result.json [--cases N] [--kernel PART]

Fails when a test fails, when none ran, or when a sanitizer finds anything. Without
compute-sanitizer that part is reported as not run.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

TESTS = ["gpu_forward", "gpu_backward", "gpu_streams", "gpu_limits", "gpu_helpers",
         "gpu_flash_attention_v2"]
# Small problems: a sanitizer slows kernels down 10 to 100 times. racecheck and synccheck watch
# shared memory, initcheck reads of memory that nobody wrote.
SANITIZER_TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]
SANITIZED = [("gpu_forward", "GpuForward.GeneratedCases"),
             ("gpu_backward", "GpuBackward.GeneratedCases")]
SKIPPED_AS_A_WHOLE = 77


def find_tests(build):
    folder = pathlib.Path(build)
    for candidate in (folder / "tests/gpu", folder):
        if (candidate / TESTS[0]).exists():
            return candidate.resolve()
    sys.exit(f"gpu_test: no {TESTS[0]} under {folder}: build the target all first")


def card_name():
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True).stdout
        return text.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def commit():
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True,
                              text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def run_test(folder, name, environment, timeout_s):
    """Counts of one test binary; its output goes to the terminal."""
    with tempfile.TemporaryDirectory() as scratch:
        report = pathlib.Path(scratch) / "report.json"
        begin = time.monotonic()
        try:
            process = subprocess.run([folder / name, f"--gtest_output=json:{report}"],
                                     env=environment, capture_output=True, text=True,
                                     timeout=timeout_s, check=False)
            code, output = process.returncode, process.stdout + process.stderr
        except subprocess.TimeoutExpired as expired:
            code, output = -1, f"{name}: no end after {timeout_s} s\n{expired.stdout}"
        seconds = time.monotonic() - begin
        result = {"test": name, "exit_code": code, "seconds": round(seconds, 1), "ran": 0,
                  "failed": 0, "skipped": []}
        if report.exists():
            data = json.loads(report.read_text())
            result["failed"] = data["failures"]
            for suite in data["testsuites"]:
                for case in suite["testsuite"]:
                    if case.get("result") == "SKIPPED":
                        result["skipped"].append(f"{suite['name']}.{case['name']}")
                    else:
                        result["ran"] += 1
        result["checked"] = {row: int(count) for row, count in
                             re.findall(r"^checked +(\S+): (\d+) cases", output, re.M)}
        worst = re.search(r"largest error / bound (\S+)", output)
        if worst:
            result["largest_error_over_bound"] = float(worst.group(1))
    if code not in (0, SKIPPED_AS_A_WHOLE):
        print(output[-6000:])
    print(f"{name}: exit {code}, {result['ran']} tests, {result['failed']} failed, "
          f"{seconds:.1f} s", flush=True)
    return result


def run_sanitizer(folder, tool, name, test, environment, timeout_s):
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(program):
        print(f"{tool} {name}: NOT RUN: no compute-sanitizer on this machine")
        return {"tool": tool, "test": name, "not_run": "no compute-sanitizer"}
    begin = time.monotonic()
    # Kernels of the driver itself (memset) are not ours to judge.
    command = [program, "--tool", tool, "--error-exitcode", "99", "--kernel-name", "kns=heed_",
               folder / name, f"--gtest_filter={test}"]
    try:
        process = subprocess.run(command, env=environment, capture_output=True, text=True,
                                 timeout=timeout_s, check=False)
        code, output = process.returncode, process.stdout + process.stderr
    except subprocess.TimeoutExpired:
        code, output = -1, f"no end after {timeout_s} s"
    seconds = time.monotonic() - begin
    errors = re.findall(r"ERROR SUMMARY: (\d+) error", output)
    result = {"tool": tool, "test": name, "exit_code": code, "seconds": round(seconds, 1),
              "errors": int(errors[-1]) if errors else None}
    if code != 0:
        print(output[-4000:])
    print(f"{tool} {name}: exit {code}, {result['errors']} errors, {seconds:.1f} s", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--json", help="record the result here")
    parser.add_argument("--cases", type=int, default=600, help="generated cases per direction")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernel", default="", help="only rows whose id contains this")
    parser.add_argument("--sanitizer-cases", type=int, default=25, help="0 = no sanitizer")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one program")
    options = parser.parse_args()
    folder = find_tests(options.build)
    environment = dict(os.environ, HEED_GPU_CASES=str(options.cases),
                       HEED_GPU_SEED=str(options.seed), HEED_GPU_KERNEL=options.kernel)
    tests = [run_test(folder, name, environment, options.timeout) for name in TESTS]
    environment.update(HEED_GPU_CASES=str(options.sanitizer_cases), HEED_GPU_COST="300000")
    sanitizers = []
    if options.sanitizer_cases > 0:
        sanitizers = [run_sanitizer(folder, tool, name, test, environment, options.timeout)
                      for tool in SANITIZER_TOOLS for name, test in SANITIZED]
    record = {"card": card_name(), "commit": commit(), "command": " ".join(sys.argv),
              "tests": tests, "sanitizers": sanitizers}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(record, indent=1) + "\n")
    if all(test["exit_code"] == SKIPPED_AS_A_WHOLE for test in tests):
        print("gpu_test: SKIPPED: no CUDA device")
        return 1
    failed = [test["test"] for test in tests if test["exit_code"] != 0 or test["ran"] == 0]
    failed += [f"{run['tool']} {run['test']}" for run in sanitizers if run.get("exit_code", 0) != 0]
    print("gpu_test: " + ("FAILED: " + ", ".join(failed) if failed else "all passed"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
