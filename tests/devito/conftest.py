"""A Devito that compiles for a GPU which is not there: its kernels run, in memory of their own."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("DEVITO_LOGGING", "ERROR")
devito = pytest.importorskip("devito")

from devito.arch.compiler import Compiler  # noqa: E402

HERE = Path(__file__).parent


class Device:
    """What a test may ask the fake device."""

    def __init__(self, library):
        self._library = library
        library.fake_diary.restype = ctypes.c_char_p

    cupy_array_at = None
    """how the device's memory is looked at where CuPy is there"""

    def begin(self, allocations=-1):
        """Start a new page of the diary; refuse memory after so many allocations."""
        self._library.fake_begin(allocations)

    @property
    def diary(self):
        return self._library.fake_diary().decode().split()

    @property
    def associated(self):
        return self._library.fake_associated()


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory):
    where = tmp_path_factory.mktemp("fake")
    library = where / "libomptarget.so"  # the name by which the runtime is found
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, HERE / "fake_openmp.c"], check=True)
    (where / "clang").write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_clang.py"} "$@"\n')
    (where / "clang").chmod(0o755)
    return library


@pytest.fixture
def device(fake_library, tmp_path_factory, monkeypatch):
    """Set Devito to clang and OpenMP on an NVIDIA GPU, and give the GPU."""
    from forebay.devito import residency, runtime

    where = tmp_path_factory.getbasetemp() / "fake-jit"
    for name in ("get_jit_dir", "get_codepy_dir"):
        directory = where / name
        directory.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(Compiler, name, lambda self, directory=directory: directory)
    monkeypatch.setenv("PATH", f"{fake_library.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_OPENMP", str(fake_library))
    monkeypatch.setattr(Device, "cupy_array_at", staticmethod(residency._array_at))
    monkeypatch.setattr(residency, "_array_at", _array_at)
    monkeypatch.setitem(sys.modules, "cupy", None)  # there may be one, but its GPU is another
    runtime.runtime.cache_clear()
    with devito.switchconfig(platform="nvidiaX", language="openmp", compiler="clang"):
        yield Device(ctypes.CDLL(str(fake_library)))
    runtime.runtime.cache_clear()


def _array_at(pointer, shape, dtype):
    """The fake device's memory is the host's, so NumPy can look at it."""
    nbytes = int(np.prod(shape)) * dtype.itemsize
    buffer = (ctypes.c_char * nbytes).from_address(pointer)
    return np.frombuffer(buffer, dtype=dtype).reshape(shape)
