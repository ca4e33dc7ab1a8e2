#!/usr/bin/env python3
"""Fails when coverage.md and the tests of this folder disagree.

Every test that the table names must exist, every test named after a report must stand in the row of
that report, and every row must name a test or say where its kind belongs.
"""

import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
TEST_FOLDERS = [FOLDER, *(FOLDER.parent / name for name in ("conformance", "core", "gpu",
                                                            "webgpu"))]


def existing_tests():
    """Names such as Faults.B009_CausalSqGreaterThanSkv, from the sources."""
    names = set()
    for folder in TEST_FOLDERS:
        for source in folder.glob("*_test.cc"):
            names.update(f"{suite}.{name}" for suite, name in
                         re.findall(r"^TEST\((\w+), (\w+)\)", source.read_text(), re.M))
    return names


def table_rows(text):
    """(id, last column) of every row."""
    return re.findall(r"^\| (B\d{3}) \|[^|\n]*\|[^|\n]*\| (.*) \|$", text, re.M)


def problems(text, tests):
    found = []
    rows = dict(table_rows(text))
    for report, where in rows.items():
        named = re.findall(r"`([\w.]+)`", where)
        found += [f"{report}: no test {name}" for name in named if name not in tests]
        if not named and not where.startswith("later: "):
            found.append(f"{report}: neither a test nor 'later: ...'")
    for test in sorted(tests):
        for report in re.findall(r"B\d{3}", test):
            if f"`{test}`" not in rows.get(report, ""):
                found.append(f"{test} is missing in the row of {report}")
    if len(rows) < 158:
        found.append(f"only {len(rows)} rows, the list has 158 reports")
    return found


def self_test():
    tests = {"Faults.B001_Right", "Faults.B002_Forgotten"}
    table = ("| B001 | x#1 | kind | `Faults.B001_Right`, `Faults.B001_Gone` |\n"
             "| B002 | x#2 | kind | soon |\n")
    found = "\n".join(problems(table, tests))
    for planted in ("no test Faults.B001_Gone", "B002: neither", "B002_Forgotten is missing",
                    "only 2 rows"):
        assert planted in found, f"not seen: {planted}"


def main():
    self_test()
    found = problems((FOLDER / "coverage.md").read_text(), existing_tests())
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
