"""Kernels of waves on GPUs of several architectures."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("cuda.core")

from forebay.cuda import driver, kernels
from forebay.wave.kernels.device import Device

PROPERTIES = {"multiprocessor_count": 1, "max_shared_memory_per_block_optin": 0}


def test_a_gpu_of_another_architecture_gets_a_binary_of_its_own(monkeypatch):
    loaded = []

    def load(source, **options):
        loaded.append(source)
        return SimpleNamespace(kernel=lambda name: SimpleNamespace(handle=len(loaded)))

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    monkeypatch.setattr(kernels, "load", load)

    def kernel(arch):
        current = SimpleNamespace(arch=arch, properties=SimpleNamespace(**PROPERTIES))
        monkeypatch.setattr(driver, "current_device", lambda: current)
        return int(Device().kernel(Path("not_there.cu"), "step", {"AXES": 2}))

    assert [kernel("90"), kernel("100"), kernel("90")] == [1, 2, 1]
