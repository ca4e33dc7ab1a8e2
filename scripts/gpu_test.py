#!/usr/bin/env python3
"""Runs the GPU tests of a build, then a part of them under compute-sanitizer; records the result.

    scripts/gpu_test.py --build build/release --json result.json [--cases N] [--arch sm90]

The generated cases are dealt out to several processes (--jobs) that share one cache of compiled
kernels. A failed case is run again by its id: HEED_GPU_CASE=ID build/release/tests/gpu/gpu_forward.

Fails when a test fails, when none ran, when a kernel row was reached by no case, or when a
sanitizer finds anything. Without compute-sanitizer that part is reported as not run.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

# With generated cases: dealt out in shards, longest first.
GENERATED = ["gpu_backward", "gpu_forward", "gpu_decode"]
# Beside them, each in a process of its own.
OTHERS = ["gpu_hopper", "gpu_flash_attention_v2", "gpu_limits", "gpu_helpers", "gpu_session",
          "gpu_session_graph", "gpu_wide_decode", "gpu_decode_pack"]
# Measures host time: runs when nothing else does.
ALONE = ["gpu_streams"]
TRAINING_EXAMPLE = "heed_example_train"
GENERATING_EXAMPLE = "heed_example_generate"
# Its tokens on the GPU and on the CPU.
GENERATING_TEST = pathlib.Path(__file__).resolve().parents[1] / (
    "tests/examples/generate_small_test.py")
# With --python: PyTorch's CUDA tensors; JAX stays on the CPU.
PYTHON_TESTS = "tests/python/frameworks"
# Small problems: a sanitizer slows kernels down 10 to 100 times. racecheck and synccheck watch
# shared memory, initcheck reads of memory that nobody wrote.
SANITIZER_TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]
SANITIZED_COST = "300000"  # multiply-adds of the largest case
# Of many sanitizers on one GPU one may miss a launch, which it reports as an error of its own.
SANITIZER_FAULT = "Internal Sanitizer Error"
SANITIZER_ATTEMPTS = 2
SKIPPED_AS_A_WHOLE = 77
ENOUGH_FOR_ALL_ROWS = 300  # cases, with which a row that none of them reached is an error


def find_programs(build):
    """Paths of the test programs and of the examples that were built."""
    folder = pathlib.Path(build)
    for tests in (folder / "tests/gpu", folder):
        if (tests / GENERATED[0]).exists():
            programs = {name: (tests / name).resolve() for name in GENERATED + OTHERS + ALONE}
            for name in (TRAINING_EXAMPLE, GENERATING_EXAMPLE):
                for example in (folder / "examples" / name, tests / name):
                    if example.exists():
                        programs[name] = example.resolve()
            return programs
    sys.exit(f"gpu_test: no {GENERATED[0]} under {folder}: build the target all first")


def first_line(command):
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return text.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def find_library(build):
    folder = pathlib.Path(build)
    for library in (folder / "src/libheed.so", folder.parent / "libheed.so.0"):
        if library.exists():
            return library.resolve()
    sys.exit(f"gpu_test: no libheed.so under {folder}: build the target all first")


class Runner:
    """Runs programs, with the time limit and the environment that all of them share."""

    def __init__(self, programs, options, cache):
        self.programs = programs
        self.timeout_s = options.timeout
        self.num_jobs = options.jobs
        self.environment = dict(
            os.environ, HEED_GPU_SEED=str(options.seed), HEED_GPU_KERNEL=options.kernel,
            HEED_CACHE_DIR=str(cache),
            # The driver keeps what it makes of PTX, which the sm75 rows are run as.
            CUDA_CACHE_PATH=str(cache / "driver"), CUDA_CACHE_MAXSIZE=str(2 << 30))

    def run(self, command, **variables):
        """(exit code, output, seconds)"""
        begin = time.monotonic()
        try:
            process = subprocess.run(command, env=dict(self.environment, **variables),
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     timeout=self.timeout_s, check=False)
            code, output = process.returncode, process.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired as expired:
            code = -1
            output = (expired.stdout or b"").decode(errors="replace")
            output += f"\nno end after {self.timeout_s} s"
        return code, output, time.monotonic() - begin

    def run_test(self, name, part="", **variables):
        """Counts of one process of a test program. part: "" all, "0/8" a shard, "rest" the tests
        without generated cases."""
        tests = {"": "*", "rest": "*-*.GeneratedCases"}.get(part, "*.GeneratedCases")
        if "/" in part:
            variables["HEED_TEST_SHARD"] = part
            variables["HEED_TEST_THREADS"] = str(max(1, (os.cpu_count() or 1) // self.num_jobs))
        with tempfile.TemporaryDirectory() as scratch:
            report = pathlib.Path(scratch) / "report.json"
            code, output, seconds = self.run(
                [self.programs[name], f"--gtest_output=json:{report}", f"--gtest_filter={tests}"],
                **variables)
            result = {"test": name, "part": part, "exit_code": code, "seconds": round(seconds, 1),
                      "ran": 0, "failed": 0, "skipped": []}
            if report.exists():
                count_gtest(json.loads(report.read_text()), result)
        result["checked"] = {row: int(count) for row, count in
                             re.findall(r"^checked +(\S+): (\d+) cases", output, re.M)}
        worst = re.search(r"largest error / bound (\S+) in (\S+)", output)
        if worst:
            result["largest_error_over_bound"] = float(worst.group(1))
            result["worst_case"] = worst.group(2)
        if name in ALONE:
            result["notes"] = re.findall(r"^host time .*", output, re.M)
        report_end(f"{name} {part}".strip(), code, f"{result['ran']} tests, "
                   f"{sum(result['checked'].values())} checks", seconds, output)
        return result

    def run_training(self):
        code, output, seconds = self.run([self.programs[TRAINING_EXAMPLE]])
        losses = [float(text) for text in re.findall(r"^step .*loss (\S+)$", output, re.M)]
        if code == 0 and not (len(losses) > 1 and losses[-1] < losses[0]):
            code = 1
        report_end(TRAINING_EXAMPLE, code, "loss " + " ".join(map(str, losses)), seconds, output)
        return {"test": TRAINING_EXAMPLE, "part": "", "exit_code": code,
                "seconds": round(seconds, 1), "ran": 1, "failed": int(code != 0), "skipped": [],
                "checked": {}, "losses": losses}

    def run_generation(self):
        code, output, seconds = self.run([sys.executable, GENERATING_TEST,
                                          self.programs[GENERATING_EXAMPLE], "--device", "cuda"])
        report_end(GENERATING_EXAMPLE, code, (output.splitlines() or [""])[-1], seconds, output)
        return {"test": GENERATING_EXAMPLE, "part": "", "exit_code": code,
                "seconds": round(seconds, 1), "ran": 1, "failed": int(code != 0), "skipped": [],
                "checked": {}}

    def run_python(self, library):
        # Most of the time goes to compiling kernels, one at a time in each process.
        spread = ["-n", str(self.num_jobs)] if importlib.util.find_spec("xdist") else []
        path = os.pathsep.join(filter(None, ["python", os.environ.get("PYTHONPATH")]))
        code, output, seconds = self.run(
            [sys.executable, "-m", "pytest", "-q", "-rs", *spread, "-p", "no:cacheprovider",
             PYTHON_TESTS], HEED_LIBRARY=str(library), PYTHONPATH=path, JAX_PLATFORMS="cpu",
            HEED_TEST_DEVICES="cuda")
        summary = (output.splitlines() or [""])[-1]
        counts = {what: int(count) for count, what in
                  re.findall(r"(\d+) (passed|failed|skipped|error)", summary)}
        ran = counts.get("passed", 0) + counts.get("failed", 0)
        report_end(PYTHON_TESTS, code, f"{ran} tests, {counts.get('skipped', 0)} skipped", seconds,
                   output)
        return {"test": PYTHON_TESTS, "part": "", "exit_code": code, "seconds": round(seconds, 1),
                "ran": ran, "failed": counts.get("failed", 0) + counts.get("error", 0),
                "skipped": re.findall(r"^SKIPPED .*", output, re.M), "checked": {}}

    def run_sanitizer(self, program, tool, name, part, num_cases):
        # Kernels of the driver itself (memset) are not ours to judge.
        tests = "*.GeneratedCases"
        if tool == "memcheck" and part.startswith("0/"):
            tests += ":*.EntriesOutOfRange*"
        command = [program, "--tool", tool, "--error-exitcode", "99", "--kernel-name", "kns=heed_",
                   self.programs[name], f"--gtest_filter={tests}"]
        for attempt in range(1, SANITIZER_ATTEMPTS + 1):
            code, output, seconds = self.run(command, HEED_GPU_CASES=str(num_cases),
                                             HEED_GPU_COST=SANITIZED_COST, HEED_TEST_SHARD=part)
            if SANITIZER_FAULT not in output:
                break
        errors = re.findall(r"ERROR SUMMARY: (\d+) error", output) or re.findall(
            r"RACECHECK SUMMARY: .*\((\d+) error", output)
        result = {"tool": tool, "test": name, "part": part, "exit_code": code,
                  "seconds": round(seconds, 1), "errors": int(errors[-1]) if errors else None,
                  "attempts": attempt}
        report_end(f"{tool} {name} {part}", code, f"{result['errors']} errors", seconds, output)
        return result


def count_gtest(data, result):
    result["failed"] = data["failures"]
    for suite in data["testsuites"]:
        for case in suite["testsuite"]:
            if case.get("result") == "SUPPRESSED" or case.get("status") == "NOTRUN":
                continue
            if case.get("result") == "SKIPPED":
                result["skipped"].append(f"{suite['name']}.{case['name']}")
            else:
                result["ran"] += 1


def report_end(name, code, facts, seconds, output):
    """One line; before it, when something failed, the end of the output."""
    text = f"{name}: exit {code}, {facts}, {seconds:.1f} s"
    if code not in (0, SKIPPED_AS_A_WHOLE):
        text = f"---- {name}\n{output[-6000:]}\n---- {text}"
    print(text, flush=True)


def merge_parts(parts):
    """One record per test program from those of its processes."""
    merged = {}
    for part in sorted(parts, key=lambda part: (part["test"], part["part"])):
        total = merged.setdefault(part["test"], {
            "test": part["test"], "exit_code": 0, "seconds": 0.0, "ran": 0, "failed": 0,
            "skipped": [], "checked": {}, "largest_error_over_bound": 0.0, "parts": []})
        if total["exit_code"] in (0, SKIPPED_AS_A_WHOLE) and part["exit_code"] != 0:
            total["exit_code"] = part["exit_code"]
        total["seconds"] = round(total["seconds"] + part["seconds"], 1)
        for count in ("ran", "failed"):
            total[count] += part[count]
        total["skipped"] = sorted(set(total["skipped"]) | set(part["skipped"]))
        for row, count in part["checked"].items():
            total["checked"][row] = total["checked"].get(row, 0) + count
        if part.get("largest_error_over_bound", 0.0) > total["largest_error_over_bound"]:
            total["largest_error_over_bound"] = part["largest_error_over_bound"]
            total["worst_case"] = part["worst_case"]
        for extra in ("notes", "losses"):
            if extra in part:
                total[extra] = part[extra]
        total["parts"].append({key: part[key] for key in ("part", "exit_code", "seconds")})
    return list(merged.values())


def failures(tests, sanitizers, options):
    """What failed, in words."""
    failed = [test["test"] for test in tests if test["exit_code"] != 0]
    if options.kernel and not any(test["checked"] for test in tests):
        failed.append(f"no row's id contains {options.kernel}")
    for test in tests:
        if test["ran"] == 0 and not options.kernel:
            failed.append(f"{test['test']}: nothing ran")
        if options.cases >= ENOUGH_FOR_ALL_ROWS and test["exit_code"] == 0:
            failed += [f"{test['test']}: no case reached {row}"
                       for row, count in test["checked"].items() if count == 0]
    return failed + [f"{run['tool']} {run['test']} {run['part']}" for run in sanitizers
                     if run.get("exit_code", 0) != 0]


def run_all(runner, options):
    """(records of tests, records of sanitizer runs)"""
    shards = [f"{at}/{options.jobs}" for at in range(options.jobs)]
    cases = str(options.cases)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tests = [pool.submit(runner.run_test, name, part, HEED_GPU_CASES=cases)
                 for name in GENERATED for part in shards]
        tests += [pool.submit(runner.run_test, name, "rest") for name in GENERATED]
        tests += [pool.submit(runner.run_test, name) for name in OTHERS]
        if TRAINING_EXAMPLE in runner.programs:
            tests.append(pool.submit(runner.run_training))
        else:
            print(f"{TRAINING_EXAMPLE}: NOT RUN: it is built where a CUDA toolkit is")
        if GENERATING_EXAMPLE in runner.programs:
            tests.append(pool.submit(runner.run_generation))
        if options.python:
            tests.append(pool.submit(runner.run_python, find_library(options.build)))
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        sanitizers, not_run = [], []
        if options.sanitizer_cases > 0 and os.path.exists(program):
            sanitizers = [pool.submit(runner.run_sanitizer, program, tool, name, f"{at}/2",
                                      options.sanitizer_cases)
                          for tool in SANITIZER_TOOLS for name in GENERATED for at in range(2)]
        elif options.sanitizer_cases > 0:
            print("compute-sanitizer: NOT RUN: there is none on this machine")
            not_run = [{"tool": tool, "test": name, "part": "", "not_run": "no compute-sanitizer"}
                       for tool in SANITIZER_TOOLS for name in GENERATED]
        parts = [future.result() for future in tests]
        sanitized = [future.result() for future in sanitizers] + not_run
    parts += [runner.run_test(name, HEED_TEST_QUIET="1") for name in ALONE]
    return merge_parts(parts), sanitized


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--json", help="record the result here")
    parser.add_argument("--cases", type=int, default=300, help="generated cases per direction")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernel", default="", help="only rows whose id contains this")
    parser.add_argument("--arch", help="only rows of this family: sm75, sm80 or sm90")
    parser.add_argument("--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)),
                        help="processes at a time")
    parser.add_argument("--cache", help="kernels compiled here are kept in this folder; by default "
                                        "gpu-test-cache in the build folder")
    parser.add_argument("--sanitizer-cases", type=int, default=25, help="0 = no sanitizer")
    parser.add_argument("--python", action="store_true",
                        help=f"also {PYTHON_TESTS}, with this Python's PyTorch, JAX, pytest")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one program")
    options = parser.parse_args()
    if options.arch and options.kernel:
        parser.error("--arch and --kernel both choose rows: pass one of them")
    if options.arch:
        options.kernel = f".{options.arch}."
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: must be at least 1")
    cache = pathlib.Path(options.cache or pathlib.Path(options.build) / "gpu-test-cache").resolve()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    begin = time.monotonic()
    tests, sanitizers = run_all(Runner(find_programs(options.build), options, cache), options)
    seconds = round(time.monotonic() - begin, 1)
    failed = failures(tests, sanitizers, options)
    record = {"card": first_line(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]),
              "commit": first_line(["git", "rev-parse", "--short", "HEAD"]),
              "command": " ".join(sys.argv), "jobs": options.jobs, "seconds": seconds,
              "failed": failed, "tests": tests, "sanitizers": sanitizers}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(record, indent=1) + "\n")
    if all(test["exit_code"] == SKIPPED_AS_A_WHOLE for test in tests):
        print("gpu_test: SKIPPED: no CUDA device")
        return 1
    print(f"gpu_test: {seconds} s: " +
          ("FAILED: " + ", ".join(failed) if failed else "all passed"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
