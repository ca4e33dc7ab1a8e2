"""The ctypes structures against the C compiler's view of heed.h."""

import ctypes
import os
import pathlib
import shutil
import subprocess

import pytest
from heed import abi

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"


def layout_lines():
    for name, struct in abi.STRUCTS.items():
        yield f"{name} {ctypes.sizeof(struct)}"
        for field, *_ in struct._fields_:
            yield f"{name}.{field} {getattr(struct, field).offset}"


def test_structures_have_the_layout_of_the_header(tmp_path):
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        pytest.fail("no C compiler")
    prints = []
    for name, struct in abi.STRUCTS.items():
        prints.append(f'printf("{name} %zu\\n", sizeof({name}));')
        prints += [f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));'
                   for field, *_ in struct._fields_]
    source = tmp_path / "layout.c"
    source.write_text("#include <stdio.h>\n#include <heed/heed.h>\nint main(void) {\n" +
                      "\n".join(prints) + "\nreturn 0; }\n")
    program = tmp_path / "layout"
    subprocess.run([compiler, "-I", INCLUDE, source, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == list(layout_lines())


@pytest.mark.parametrize("choices, prefix", [
    (abi.BACKENDS, "HEED_BACKEND_"), (abi.ALIGNMENTS, "HEED_ALIGN_"),
    (abi.ROTARY_LAYOUTS, "HEED_ROTARY_"), (abi.KV_FORMATS, "HEED_KV_"),
    (abi.KV_LAYOUTS, "HEED_KV_LAYOUT_")])
def test_named_choices_are_those_of_the_header(choices, prefix):
    text = (INCLUDE / "heed/heed.h").read_text()
    for name, value in choices.items():
        assert f"{prefix}{name.upper()} = {value}" in text
