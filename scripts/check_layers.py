#!/usr/bin/env python3
"""Checks who includes whom (docs/design.md, "layers").

include <- api -> session -> core <- {reference, cpu, cuda, webgpu}; device is included by all of
them and includes nothing but itself; ptx <- tile <- smXX; tools, python, bench and examples see
include/ and their own files only, and tools the roofs of bench/; operating-system headers stand in
src/core/os alone; no framework in src/.
Usage: check_layers.py [--self-test] [ROOT]
"""

import pathlib
import re
import sys
import tempfile

SOURCE_SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cpp", ".inc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

BACKENDS = {"reference", "cpu", "cuda", "webgpu"}
# What each layer may include besides itself and, except for device, the standard library.
ALLOWED = {
    "include": set(),
    "device": set(),
    "core": {"include", "device"},
    "session": {"include", "device", "core"},
    "api": {"include", "device", "core", "session"},
    **{backend: {"include", "device", "core"} for backend in BACKENDS},
    **{outside: {"include"} for outside in ("python", "bench", "examples")},
    "tools": {"include", "bench"},
}
# A backend is entered through its public header only.
ENTRY_HEADERS = {"src/cpu/forward.h", "src/cpu/backward.h", "src/cpu/decode.h",
                 "src/cpu/int8_forward.h",
                 "src/cuda/backend.h", "src/cuda/packs.h",
                 "src/webgpu/backend.h", "src/webgpu/buffer_images.h", "src/reference/reference.h"}
# Written by the host for every kernel it compiles (src/cuda/kernel_traits.h).
GENERATED_HEADERS = {"heed_traits.h"}
ENTERS_BACKENDS = {"api"}

KERNEL_TIERS = {
    "ptx": {"ptx"},
    "tile": {"ptx", "tile", "common"},
    "common": {"ptx", "tile", "common"},
}
FRAMEWORKS = re.compile(
    r"^(torch|ATen|c10|caffe2|tensorflow|jax|numpy|pybind11|nanobind|cutlass|cute|cub|thrust)/"
    r"|^(Python|cuda|cuda_runtime|cuda_runtime_api|cuda_fp16|cuda_bf16|nvrtc|cudnn|cublas_v2)\.h$")
SYSTEM = re.compile(
    r"^(sys|linux|asm)/|^thread$"
    r"|^(unistd|dlfcn|pthread|sched|fcntl|signal|cpuid|windows|dirent)\.h$")
SYSTEM_CALLS = re.compile(r"\b(getenv|dlopen|dlsym|mmap|pthread_\w+|sched_\w+)\s*\(")


def layer_of(path):
    """Layer name of a path relative to the root, or None when no rule covers it."""
    parts = path.split("/")
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else None
    return parts[0] if parts[0] in ALLOWED else None


def kernel_tier(path):
    match = re.match(r"src/cuda/kernels/([^/]+)/", path)
    return match.group(1) if match else None


def resolve(root, includer, name):
    """Path (relative to root) that a quoted include names, or None."""
    for base in (root / "src", root / "include", (root / includer).parent, root):
        candidate = base / name
        if candidate.is_file():
            return candidate.resolve().relative_to(root).as_posix()
    return None


def check_kernel_tiers(includer, target):
    tier, target_tier = kernel_tier(includer), kernel_tier(target)
    if tier is None:
        return None
    if target_tier is None:
        return None if layer_of(target) == "device" else "device kernels see device/ only"
    allowed = KERNEL_TIERS.get(tier, {"ptx", "tile", "common", tier})
    return None if target_tier in allowed else f"kernels/{tier} may not see kernels/{target_tier}"


def check_include(root, includer, bracket, name):
    """The rule that this include breaks, or None."""
    layer = layer_of(includer)
    if includer.startswith("src/") and FRAMEWORKS.search(name):
        return "no framework headers in src/"
    if bracket == "<" and not (root / "include" / name).is_file():
        if layer == "device":
            return "device/ includes nothing but itself"
        in_os = includer.startswith("src/core/os/")
        if includer.startswith("src/") and not in_os and SYSTEM.search(name):
            return "operating-system headers belong to src/core/os"
        return None
    if name in GENERATED_HEADERS and kernel_tier(includer):
        return None
    target = resolve(root, includer, name)
    if target is None:
        return "no such file"
    if layer is None:
        return None
    target_layer = layer_of(target)
    if target_layer == layer:
        return check_kernel_tiers(includer, target)
    if target_layer in ALLOWED[layer]:
        return check_kernel_tiers(includer, target)
    if layer in ENTERS_BACKENDS and target in ENTRY_HEADERS:
        return None
    return f"{layer} may not see {target_layer or target}"


def source_files(root):
    for top in ("include", "src", "tools", "python", "bench", "examples"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES and path.is_file():
                yield path


def check_tree(root):
    """All violations under root, one text each."""
    violations = []
    for path in source_files(root):
        includer = path.relative_to(root).as_posix()
        outside_os = includer.startswith("src/") and not includer.startswith("src/core/os/")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            rule = check_include(root, includer, *match.groups()) if match else None
            if outside_os and not match and SYSTEM_CALLS.search(line.split("//")[0]):
                rule = "operating-system calls belong to src/core/os"
            if rule:
                violations.append(f"{includer}:{number}: {line.strip()}: {rule}")
    return violations


def self_test():
    """Plants each kind of violation in a small tree and expects exactly those to be reported."""
    clean = {
        "include/heed/heed.h": "#include <stddef.h>\n",
        "src/device/mask.h": '#include "device/prelude.h"\n',
        "src/device/prelude.h": "\n",
        "src/core/plan.h": '#include <vector>\n#include "device/mask.h"\n#include "heed/heed.h"\n',
        "src/core/os/os.cc": "#include <unistd.h>\nchar* v = getenv(name);\n",
        "src/cpu/forward.h": '#include "core/plan.h"\n',
        "src/cpu/inner.h": '#include "cpu/forward.h"\n',
        "src/reference/reference.h": '#include "core/plan.h"\n',
        "src/api/forward.cc": '#include "cpu/forward.h"\n#include "reference/reference.h"\n',
        "src/cuda/kernels/ptx/mma.cuh": "\n",
        "src/cuda/kernels/tile/gemm.cuh": '#include "cuda/kernels/ptx/mma.cuh"\n',
        "src/cuda/kernels/sm80/forward.cuh": '#include "cuda/kernels/tile/gemm.cuh"\n',
        "tools/heed/own.h": '#include "heed/heed.h"\n#include <CLI/CLI.hpp>\n',
    }
    planted = {
        "src/device/bad_system.h": "#include <cstdint>\n",
        "src/device/bad_layer.h": '#include "core/plan.h"\n',
        "src/core/bad_backend.cc": '#include "cpu/forward.h"\n',
        "src/core/bad_header.cc": "#include <unistd.h>\n",
        "src/core/bad_call.cc": "auto v = std::getenv(name);\n",
        "src/cpu/bad_peer.cc": '#include "reference/reference.h"\n',
        "src/api/bad_inner.cc": '#include "cpu/inner.h"\n',
        "src/cuda/bad_framework.cc": "#include <torch/extension.h>\n",
        "src/cuda/kernels/ptx/bad.cuh": '#include "cuda/kernels/tile/gemm.cuh"\n',
        "src/cuda/kernels/sm90/bad.cuh": '#include "cuda/kernels/sm80/forward.cuh"\n',
        "tools/heed/bad.cc": '#include "core/plan.h"\n',
        "src/core/bad_missing.cc": '#include "core/nowhere.h"\n',
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in {**clean, **planted}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = sorted(text.split(":")[0] for text in check_tree(root))
    if found != sorted(planted):
        print(f"self-test: expected {sorted(planted)}, found {found}", file=sys.stderr)
        return 1
    print(f"self-test: all {len(planted)} planted violations found, no others")
    return 0


def main(arguments):
    if "--self-test" in arguments:
        return self_test()
    default_root = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(arguments[0]).resolve() if arguments else default_root
    violations = check_tree(root)
    for violation in violations:
        print(violation, file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
