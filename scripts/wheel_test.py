#!/usr/bin/env python3
"""Builds the Python wheel, looks into it, installs it alone and uses it.

    python3 scripts/wheel_test.py [--folder build/wheel-test] [--define NAME=VALUE]

Needs: pip, and PyPI for the build backend; NumPy for the interpreter that runs this. auditwheel is
asked for its verdict where it installs.
"""

import argparse
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_BYTES = 6_000_000
NEWEST_GLIBC = (2, 35)  # manylinux_2_35

# Run by the interpreter that has the installed wheel, from a folder without sources.
USE = r"""
import os, pathlib, sys
import heed
loaded = {name.partition(".")[0] for name in sys.modules} & {"torch", "jax", "cupy", "cuda"}
assert not loaded, f"import heed imported {loaded}"
maps = pathlib.Path("/proc/self/maps").read_text()
assert "libheed" not in maps and "libcuda" not in maps, "import heed opened a library"
assert "site-packages" in heed.__file__, heed.__file__

import numpy
source = numpy.random.default_rng(0)
q, k, v = (source.standard_normal((4, 300, 8, 64), dtype=numpy.float32) for _ in range(3))
expected = heed.attention(q, k, v, causal=True)
s = numpy.einsum("bihd,bjhd->bhij", q, k) / 8
s = numpy.where(numpy.tri(300, dtype=bool), s, -numpy.inf)
p = numpy.exp(s - s.max(-1, keepdims=True))
plain = numpy.einsum("bhij,bjhd->bihd", p / p.sum(-1, keepdims=True), v)
numpy.testing.assert_allclose(expected, plain, atol=1e-5)
assert "libcuda" not in pathlib.Path("/proc/self/maps").read_text(), "a CPU call opened CUDA"

for _ in range(2):  # the pool's threads exist here, and not in a child
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(30)
        same = numpy.array_equal(heed.attention(q, k, v, causal=True), expected)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0, "a forked child failed"
assert numpy.array_equal(heed.attention(q, k, v, causal=True), expected)
print("heed", heed.version(), "runs from", heed.__file__)
"""


def run(command, **options):
    return subprocess.run(list(map(str, command)), check=True, **options)


def build(folder, defines):
    """The wheel's path."""
    wheels = folder / "wheels"
    for old in wheels.glob("*.whl"):
        old.unlink()
    maker = environment(folder / "maker")
    # The compilers by the names that ./dev build has, for the compiler's cache.
    compilers = {"CC": shutil.which("cc"), "CXX": shutil.which("c++")}
    run([*pip(maker, "wheel"), "--no-deps", "--wheel-dir", wheels, ROOT],
        env={**compilers, **os.environ, "SKBUILD_CMAKE_DEFINE": ";".join(defines)})
    found = list(wheels.glob("*.whl"))
    assert len(found) == 1, f"wheels: {found}"
    return found[0]


def environment(folder):
    """The Python of a fresh virtual environment, which sees the system's NumPy."""
    venv.create(folder, clear=True, with_pip=True, system_site_packages=True)
    return folder / "bin/python"


def pip(python, command):
    return [python, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]


def inspect(wheel):
    assert re.fullmatch(r"heed-[0-9.]+-py3-none-[a-z0-9_]+\.whl", wheel.name), wheel.name
    size = wheel.stat().st_size
    assert size < MAX_BYTES, f"{wheel.name}: {size} bytes, must be below {MAX_BYTES}"
    names = zipfile.ZipFile(wheel).namelist()
    libraries = [name for name in names if ".so" in name]
    assert libraries == ["heed/libheed.so.0"], libraries
    others = [name for name in names if not name.endswith((".py", ".pyi", "/py.typed", ".so.0"))
              and ".dist-info/" not in name]
    assert "heed/py.typed" in names and "heed/__init__.pyi" in names, names
    assert not others, f"files that nobody asked for: {others}"
    print(f"{wheel.name}: {size} bytes, {len(names)} files")


def inspect_symbols(folder, wheel):
    """No C++ runtime, no CUDA, and symbols of a C library that old systems have."""
    zipfile.ZipFile(wheel).extract("heed/libheed.so.0", folder / "unpacked")
    library = folder / "unpacked/heed/libheed.so.0"
    text = run(["readelf", "-d", "-V", library], capture_output=True, text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    known = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"}
    assert all(name in known or name.startswith("ld-linux") for name in needed), needed
    versions = [tuple(map(int, version.split("."))) for version in re.findall(
        r"GLIBC_([0-9.]+)", text)]
    assert max(versions) <= NEWEST_GLIBC, f"needs glibc {max(versions)}"
    exported = run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout
    allowed = re.findall(r"^    (\w+\*?);", (ROOT / "cmake/heed.map").read_text(), re.M)
    foreign = [line for line in exported.splitlines() if not any(
        fnmatch.fnmatchcase(line.split()[-1], pattern) for pattern in allowed)]
    assert not foreign, f"exports what cmake/heed.map does not name: {foreign[:5]}"
    print(f"needs {', '.join(needed)}, glibc {'.'.join(map(str, max(versions)))}")


def audit(folder, wheel):
    """auditwheel's verdict, where it installs."""
    maker = folder / "maker/bin/python"
    if subprocess.run([*pip(maker, "install"), "auditwheel"], check=False).returncode != 0:
        print("auditwheel: NOT RUN: it did not install")
        return
    text = run([maker, "-m", "auditwheel", "show", wheel], capture_output=True, text=True).stdout
    tags = [tuple(map(int, version)) for version in re.findall(r"manylinux_(\d+)_(\d+)_", text)]
    assert tags and min(tags) <= NEWEST_GLIBC, text
    print(f"auditwheel: manylinux_{min(tags)[0]}_{min(tags)[1]}")


def use(folder, wheel):
    python = environment(folder / "user")
    run([*pip(python, "install"), "--no-deps", "--no-index", wheel])
    variables = {name: value for name, value in os.environ.items()
                 if name not in ("PYTHONPATH", "HEED_LIBRARY")}
    run([python, "-c", USE], cwd=folder, env=variables)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", default=ROOT / "build/wheel-test", type=pathlib.Path)
    parser.add_argument("--define", action="append", default=[], help="for CMake, NAME=VALUE")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = build(folder, options.define)
    inspect(wheel)
    inspect_symbols(folder, wheel)
    audit(folder, wheel)
    use(folder, wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
