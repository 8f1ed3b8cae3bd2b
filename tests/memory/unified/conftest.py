"""Libraries that only take allocators."""

import importlib
import sys
from types import SimpleNamespace

import pytest

from tests.memory.unified.fakes import GB, FakeCupy, FakeRmm, FakeTorch


@pytest.fixture
def rmm(monkeypatch):
    """A machine that has RMM, CuPy and torch, none of them used so far."""
    from forebay.cuda import driver

    made = FakeRmm()
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy())
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    monkeypatch.setitem(sys.modules, "cudf", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "rmm", made)
    monkeypatch.setitem(sys.modules, "rmm.pylibrmm.stream", SimpleNamespace(Stream=lambda obj: obj))
    allocator = SimpleNamespace(allocator=lambda: "allocator")
    monkeypatch.setitem(sys.modules, "rmm.allocators.torch", SimpleNamespace(rmm_torch_allocator=allocator))
    monkeypatch.setattr(driver, "device_memory", lambda: (100 * GB, 140 * GB))
    monkeypatch.setattr(driver, "managed_concurrently", lambda: True)
    monkeypatch.setattr(importlib.import_module("forebay.memory.unified.unify"), "_known", [])
    return made


@pytest.fixture
def cupy(rmm):
    return sys.modules["cupy"]


@pytest.fixture
def torch(rmm):
    return sys.modules["torch"]
