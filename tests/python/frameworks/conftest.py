"""Tests of heed with PyTorch and JAX, on the CPU and, where there is one, a CUDA device. Run by
`./dev test --torch`, which installs both."""

import functools
import os

import pytest
import torch

# HEED_TEST_DEVICES: those to test on, "cpu,cuda" for example; by default all that are there.
DEVICES = os.environ.get("HEED_TEST_DEVICES", "").split(",")
if DEVICES == [""]:
    DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(hash(request.node.name) % 1000)
    return request.param


@pytest.fixture
def compile_whole(device):
    """torch.compile without graph breaks: by its default compiler where that runs, which needs the
    headers of Python, else by the one that generates no code."""
    def compiled(function):
        return torch.compile(function, fullgraph=True, backend=_backend(device))
    return compiled


@functools.lru_cache(maxsize=None)
def _backend(device):
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8, device=device))
    except Exception as error:  # whatever the compiler of this machine does not find
        print(f"torch.compile on {device}: without code generation: {error}")
        return "aot_eager"
    return "inductor"
