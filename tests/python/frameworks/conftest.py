"""Tests of heed with PyTorch and JAX, on the CPU and, where there is one, a CUDA device. Run by
`./dev test --torch`, which installs both."""

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
