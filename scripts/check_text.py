#!/usr/bin/env python3
"""Checks the text of the tree: ASCII, line and file lengths, bare names, constants spelled once.

Usage: check_text.py [--self-test] [ROOT]
"""

import pathlib
import re
import subprocess
import sys
import tempfile

CODE_SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cpp", ".inc", ".cu", ".cuh", ".wgsl", ".mjs", ".py",
                 ".sh", ".cmake"}
TEXT_SUFFIXES = CODE_SUFFIXES | {".md", ".txt", ".json", ".map", ".in"}
CODE_NAMES = {"dev", "run", "CMakeLists.txt"}
EXEMPT = {"LICENSE"}

MAX_COLUMNS = 100
MAX_LINES = 500
MAX_KERNEL_LINES = 600  # the main loop of a device kernel
KERNEL_MAIN_LOOPS = re.compile(r"^src/cuda/kernels/(sm\d+|mma)/")

# A constant with a formula behind it stands in one file under src/ and include/.
LITERALS = {
    "log2(e)": re.compile(r"\b1\.4426\d*|0x1\.71547\w*"),
    "ln(2)": re.compile(r"\b0?\.693147\d*|0x1\.62e4\w*"),
    "Philox multiplier": re.compile(r"0x[dD]2511[fF]53|0x[cC][dD]9[eE]8[dD]57"),
}
LITERAL_FOLDERS = ("src/", "include/", "tools/")

# Names without a unit. Members called size() and the like are fine: they follow the standard.
# Unsigned 64-bit values are left alone: dropout's seed and offset are counters.
BARE_NAME = re.compile(
    r"\b(?:int\d*(?:_t)?|uint32_t|size_t|ptrdiff_t|i32|u32|i64|auto|long)"
    r"\s+(size|len|stride|offset)\s*[=;,)]")
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def tracked_files(root):
    """Paths under version control; every file when there is no usable repository."""
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=False) if (root / ".git").exists() else None
    if listing is not None and listing.returncode == 0:
        names = [name for name in listing.stdout.decode().split("\0") if name]
    else:
        names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    skipped = ("build/", "out/", ".git/", ".cache/")
    return sorted(name for name in names
                  if not name.startswith(skipped) and (root / name).is_file())


def is_code(name):
    path = pathlib.PurePosixPath(name)
    return path.suffix in CODE_SUFFIXES or path.name in CODE_NAMES


def is_text(name):
    return is_code(name) or pathlib.PurePosixPath(name).suffix in TEXT_SUFFIXES


def check_line(name, line):
    """The rules that one line breaks."""
    if not line.isascii():
        yield "not ASCII"
    if line != line.rstrip():
        yield "space at the end of the line"
    if not is_code(name):
        return
    if len(line) > MAX_COLUMNS and not name.endswith(".inc") and "http" not in line:
        yield f"{len(line)} columns, at most {MAX_COLUMNS}"
    if LEFTOVERS.search(line) and name != "scripts/check_text.py":
        yield "unfinished work is not committed"
    bare = BARE_NAME.search(line.split("//")[0]) if name.startswith(("src/", "tools/")) else None
    if bare:
        yield f"'{bare.group(1)}' without a unit: say _bytes, _elems, _rows ..."


def check_file(name, text):
    violations = []
    lines = text.split("\n")
    if lines[-1]:
        violations.append(f"{name}: no newline at the end")
    for number, line in enumerate(lines, 1):
        violations += [f"{name}:{number}: {rule}" for rule in check_line(name, line)]
    limit = MAX_KERNEL_LINES if KERNEL_MAIN_LOOPS.match(name) else MAX_LINES
    if is_code(name) and name != "include/heed/heed.h" and len(lines) - 1 > limit:
        violations.append(f"{name}: {len(lines) - 1} lines, at most {limit}")
    return violations


def check_literals(texts):
    violations = []
    for meaning, pattern in LITERALS.items():
        homes = [name for name, text in texts.items()
                 if name.startswith(LITERAL_FOLDERS) and pattern.search(text)]
        if len(homes) > 1:
            violations.append(f"{meaning} is spelled in {', '.join(homes)}: keep one")
    return violations


def check_tree(root):
    violations, texts = [], {}
    for name in tracked_files(root):
        if name in EXEMPT or not is_text(name):
            continue
        texts[name] = (root / name).read_text(encoding="utf-8", errors="surrogateescape")
        violations += check_file(name, texts[name])
    return violations + check_literals(texts)


def self_test():
    """Plants each kind of violation and expects exactly those files to be reported."""
    planted = {
        "src/a/ascii.cc": "// caf\u00e9\n",
        "src/a/columns.cc": "//" + "x" * MAX_COLUMNS + "\n",
        "src/a/lines.cc": "\n" * (MAX_LINES + 1),
        "src/a/spaces.cc": "int x; \n",
        "src/a/newline.cc": "int x;",
        "src/a/bare.cc": "int64_t stride = 1;\n",
        "src/a/leftover.cc": "// TO" "DO: later\n",
    }
    twice = {"src/a/log2e.cc": "double a = 1.44269504;\n",
             "src/b/log2e.cc": "double b = 1.4426f;\n"}
    clean = {
        "src/a/clean.cc": "int64_t stride_elems = 1; // x\nsize_t size() const;\n",
        "src/cuda/kernels/sm80/forward.cuh": "\n" * MAX_KERNEL_LINES,
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**planted, **twice, **clean}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        violations = check_tree(root)
    found = sorted(text.split(":")[0] for text in violations)
    if found != sorted([*planted, "log2(e) is spelled in src/a/log2e.cc, src/b/log2e.cc"]):
        print("self-test: unexpected result:", *violations, sep="\n", file=sys.stderr)
        return 1
    print(f"self-test: all {len(planted) + 1} planted violations found, no others")
    return 0


def main(arguments):
    if "--self-test" in arguments:
        return self_test()
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).parent.parent
    violations = check_tree(root.resolve())
    for violation in violations:
        print(violation, file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
