"""Tests of heed with PyTorch and JAX, on the CPU and, where there is one, a CUDA device. Run by
`./dev test --torch`, which installs both."""

import pytest
import torch

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(hash(request.node.name) % 1000)
    return request.param
