"""A thread's way of computing with denormal numbers: that of Devito while an operator runs, and its own afterwards."""

import ctypes
import platform
import threading

import numpy as np
import pytest

devito = pytest.importorskip("devito")

from forebay.devito import Run, floating  # noqa: E402

TINY = np.full(4, 1e-40, np.float32)  # denormal


def keeps_denormals():
    return bool((TINY * np.float32(1)).all())


@pytest.fixture
def flushing():
    """Give the environment of a thread that flushes denormal numbers to zero, as Devito's code may leave it."""
    set_bit = {"aarch64": _aarch64, "x86_64": _x86_64}.get(platform.machine())
    if set_bit is None:
        pytest.skip("not known for this processor")
    found = floating.environment()
    set_bit(found)
    with floating.restored(during=found):
        assert not keeps_denormals()
    return found


def _aarch64(environment):
    ctypes.c_uint32.from_buffer(environment).value |= 1 << 24  # FZ of FPCR, which glibc puts first


def _x86_64(environment):
    ctypes.c_uint32.from_buffer(environment, 28).value |= 0x8040  # FZ and DAZ of MXCSR, after 28 bytes of the x87


def shrinking(name):
    """Give an operator that makes a field of ones denormal in its thirteenth step."""
    u = devito.TimeFunction(name="u", grid=devito.Grid(shape=(8, 8)))
    u.data[:] = 1.0
    return u, devito.Operator(devito.Eq(u.forward, u * 1e-3), name=name)


def load_as_if_fast(monkeypatch, flushing):
    """Have the compiled code of operators set the environment when it is first loaded, as -ffast-math does."""
    load = devito.configuration["compiler"].__class__.load
    seen = set()

    def loading(self, soname):
        if soname not in seen:
            seen.add(soname)
            floating._libm.fesetenv(flushing)
        return load(self, soname)

    monkeypatch.setattr(devito.configuration["compiler"].__class__, "load", loading)


def test_an_operator_runs_as_devito_runs_it_and_leaves_the_thread_as_it_was(monkeypatch, flushing):
    load_as_if_fast(monkeypatch, flushing)
    u, operator = shrinking("Shrinking")
    run = Run(operator)
    run(0, 13)
    assert keeps_denormals()
    assert (u.data[1] == 0).all()  # by an operator that flushes
    u.data[:] = 1.0
    Run(operator)(0, 13)  # loaded before, and equal to itself
    assert keeps_denormals() and (u.data[1] == 0).all()


def test_an_operator_gives_what_it_gives_by_itself():
    u, operator = shrinking("Plain")
    with floating.restored():
        operator.apply(time_m=0, time_M=12)
    expected, u.data[:] = np.array(u.data), 1.0
    Run(operator)(0, 13)
    assert keeps_denormals()
    assert np.array_equal(u.data, expected)


def test_the_thread_is_restored_after_an_error(flushing):
    with pytest.raises(ZeroDivisionError), floating.restored(during=flushing):
        _ = 1 / 0
    assert keeps_denormals()


def test_tests_after_one_that_leaves_denormals_out_are_as_before(flushing):
    floating._libm.fesetenv(flushing)  # undone for all tests; the next one looks


def test_denormals_are_there_by_default():
    found = []
    thread = threading.Thread(target=lambda: found.append(keeps_denormals()))
    thread.start()
    thread.join()
    assert keeps_denormals() and found == [True]
