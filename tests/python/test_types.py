"""heed/__init__.pyi says what the package has."""

import ast
import inspect
import pathlib

import heed
from heed import abi, calls, operations

STUB = ast.parse((pathlib.Path(heed.__file__).parent / "__init__.pyi").read_text())


def functions():
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, [one.arg for one in node.args.args + node.args.kwonlyargs]


def literals(name):
    assigned = next(node.value for node in STUB.body if isinstance(node, ast.Assign)
                    and node.targets[0].id == name)
    return [element.value for element in assigned.slice.elts]


def test_every_public_name_has_a_type():
    named = {name for name, _ in functions()}
    named |= {node.name for node in STUB.body if isinstance(node, ast.ClassDef)}
    assert named == set(heed.__all__)


def test_parameters_are_those_of_the_functions():
    for name, parameters in functions():
        # decode's that its wrapper passes on
        source = operations.run_decode if name == "decode" else getattr(heed, name)
        own = {key for key, one in inspect.signature(source).parameters.items()
               if one.kind is not one.VAR_KEYWORD}
        assert own <= set(parameters), name
        assert set(parameters) - own <= set(operations.OPTIONS + operations.CACHE_OPTIONS), name


def test_options_of_attention_are_all_there():
    for name, parameters in functions():
        if name == "attention":
            assert set(operations.OPTIONS) <= set(parameters)
    for build in (calls.Builder.score, calls.Builder.varlen, calls.Builder.exec):
        known = set(inspect.signature(build).parameters) - {"self"}
        assert known <= set(operations.OPTIONS)


def test_choices_are_those_of_the_library():
    assert literals("Backend") == list(abi.BACKENDS)
    assert literals("Alignment") == list(abi.ALIGNMENTS)
    assert literals("KvFormat") == list(abi.KV_FORMATS)
    assert literals("KvLayout") == list(abi.KV_LAYOUTS)
