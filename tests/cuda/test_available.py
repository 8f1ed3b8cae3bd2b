import ctypes
import subprocess
import sys

import pytest

from forebay.cuda import available


@pytest.fixture(autouse=True)
def fresh():
    available._look.cache_clear()
    yield
    available._look.cache_clear()


class Driver:
    """A libcuda that answers as it is told."""

    def __init__(self, init=0, devices=0):
        self.init, self.devices = init, devices

    def cuInit(self, _flags):  # noqa: N802
        return self.init

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = self.devices
        return 0


def test_no_driver(monkeypatch):
    def missing(_name):
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert available.gpu_count() == 0
    assert "install Forebay with its extra cuda12 or cuda13" in available.why_not()


@pytest.mark.parametrize("driver", [Driver(init=100), Driver(devices=0)])
def test_driver_without_gpu(monkeypatch, driver):
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: driver)
    assert available.gpu_count() == 0
    assert "CUDA_VISIBLE_DEVICES" in available.why_not()


def test_driver_that_does_not_start(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Driver(init=999))
    assert available.gpu_count() == 0
    assert "999" in available.why_not()


def test_gpu_without_libraries(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Driver(devices=2))
    monkeypatch.setattr(available, "find_spec", lambda name: None)
    assert available.gpu_count() == 0
    assert (
        "cuda.core" in available.why_not() and "install Forebay with its extra cuda12 or cuda13" in available.why_not()
    )


def test_gpus_and_libraries(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Driver(devices=2))
    monkeypatch.setattr(available, "find_spec", lambda name: object())
    assert available.gpu_count() == 2
    assert available.why_not() == ""


def test_asking_imports_no_gpu_library():
    code = """
import sys, forebay.cuda.available as a
a.gpu_count()
assert not {"cuda.core", "cupy", "torch"} & set(sys.modules), sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
