#!/usr/bin/env python3
"""One line about what the tests of one or more build folders did.

For each folder reads <folder>/ctest.xml (ctest --output-junit) and, for tests that leave a report
of their own (GoogleTest, pytest), <folder>/test-results/<test>.xml, and counts the cases inside.
Fails when a case failed, or when fewer cases ran than the floor of that folder's name in the floors
file: a filter or a crash that silently drops tests must not look like success.
Usage: test_summary.py FLOORS FOLDER...
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count_cases(path):
    """(passed, failed, skipped lines) of one report."""
    passed, failed, skipped = 0, 0, []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        reason = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif reason is not None:
            text = " ".join((reason.get("message") or "").split())
            skipped.append(f"{case.get('classname')}.{case.get('name')}: {text}")
        elif case.get("status", "run") == "run":  # pytest names no status
            passed += 1
    return passed, failed, skipped


def count_folder(folder):
    """(passed, failed, skipped lines) of one build folder."""
    passed, failed, skipped = 0, 0, []
    for case in ElementTree.parse(folder / "ctest.xml").getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        report = folder / "test-results" / f"{name}.xml"
        if status not in ("run", "fail"):
            skipped.append(f"{name}: {status}")
            continue
        counts = count_cases(report) if report.is_file() else (int(status == "run"), 0, [])
        passed, skipped = passed + counts[0], skipped + counts[2]
        # A binary that crashed leaves no report, or one without its failure: still one failure.
        failed += max(counts[1], int(status == "fail"))
    return passed, failed, skipped


def read_floors(path):
    lines = (line.split("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
    return {fields[0]: int(fields[1]) for fields in lines if fields}


def main(arguments):
    floors = read_floors(pathlib.Path(arguments[0]))
    passed, failed, skipped, too_few = 0, 0, [], []
    for folder in map(pathlib.Path, arguments[1:]):
        counts = count_folder(folder)
        executed = counts[0] + counts[1]
        if executed < floors[folder.name]:
            too_few.append(f"{folder.name}: {executed} executed, at least {floors[folder.name]}")
        passed, failed = passed + counts[0], failed + counts[1]
        skipped += [f"{folder.name}: {line}" for line in counts[2]]
    for line in skipped:
        print(f"SKIPPED {line}")
    for line in too_few:
        print(f"TOO FEW TESTS {line}")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 1 if failed or too_few else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
