"""Managed memory as Devito's data: whose allocator it is, when operators use it in place, and what is refused."""

import ctypes
import gc
import warnings

import numpy as np
import pytest

devito = pytest.importorskip("devito")

from devito.data import allocators  # noqa: E402

from forebay.devito import (  # noqa: E402
    DevitoError,
    UnifiedAllocator,
    fields,
    managed,
    resident,
    sync_device,
    sync_host,
    unified,
    view,
)
from forebay.errors import DeviceError  # noqa: E402
from forebay.memory import OversubscriptionWarning  # noqa: E402

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype, LIBC.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]


@pytest.fixture
def moves(device, monkeypatch):
    """Managed memory that is the host's own, and a list of the ways in which it was moved."""
    seen = []

    def allocate(nbytes, oversubscribe):
        pointer = LIBC.malloc(nbytes)
        managed.MANAGED[pointer] = np.empty(nbytes, np.uint8)
        return pointer

    def free(pointer):
        del managed.MANAGED[pointer]
        LIBC.free(pointer)

    monkeypatch.setattr(managed, "allocate", allocate)
    monkeypatch.setattr(managed, "free", free)
    monkeypatch.setattr(fields, "prefetch", lambda at, nbytes, to_device: seen.append("up" if to_device else "down"))
    yield seen
    managed.MANAGED.clear()  # what Devito still holds is given back like ordinary memory


def field(name="f", **options):
    f = devito.Function(name=name, grid=devito.Grid(shape=(6, 7)), **options)
    f.data[:] = 1.0
    return f


def collect():
    """Let Devito and Python give up what nobody has any longer."""
    devito.clear_cache()
    gc.collect()


@pytest.mark.slow
def test_one_function_may_be_allocated_in_managed_memory(moves):
    f = field(allocator=UnifiedAllocator())
    address = view(f).ctypes.data
    assert address in managed.MANAGED
    del f
    collect()
    assert address not in managed.MANAGED


@pytest.mark.slow
def test_resident_uses_managed_memory_in_place(device, moves):
    f, g = field("f", allocator=UnifiedAllocator()), field("g")
    with resident(f, g):
        assert moves == ["up"]
        device.begin()
        devito.Operator([devito.Eq(f, f + g)])()
        assert (f.data == 2.0).all()  # the host's copy is the device's
        assert device.diary == []
    assert "down" not in device.diary and device.associated == 0


def test_everything_inside_unified_is_managed_and_used_in_place(device, moves):
    before = dict(allocators.custom_allocators)
    with unified():
        f, g = field("f"), field("g")
        add = devito.Operator([devito.Eq(f, f + g)])
        device.begin()
        for _ in range(3):
            add()
        assert device.diary == ["associate", "associate"]  # at first use, and nothing was copied
        assert (f.data == 4.0).all()
        assert "enter data" not in str(add)
    assert allocators.custom_allocators == before and device.associated == 0
    assert view(field("h")).ctypes.data not in managed.MANAGED
    with pytest.raises(DevitoError, match="f, g is not on the device"):
        add()
    with unified():
        add()
    assert (f.data == 5.0).all()


@pytest.mark.slow
def test_a_function_from_elsewhere_is_named(moves):
    f = field("f")
    with unified():
        g = field("g")
        with pytest.raises(DevitoError, match="f is not on the device"):
            devito.Operator([devito.Eq(g, f + g)])()


@pytest.mark.slow
def test_a_function_that_goes_away_leaves_the_device_too(device, moves):
    with unified():
        f = field("f")
        address = view(f).ctypes.data
        assert device.associated == 1
        del f  # an operator on it would hold it, as Devito does
        collect()
        assert device.associated == 0 and address not in managed.MANAGED


def test_an_exception_restores_devito(moves):
    before = dict(allocators.custom_allocators)
    with pytest.raises(ZeroDivisionError), unified():
        1 / 0  # noqa: B018
    assert allocators.custom_allocators == before


def test_what_was_registered_meanwhile_stays_so(moves, monkeypatch):
    monkeypatch.setattr(allocators, "custom_allocators", dict(allocators.custom_allocators))
    mine = allocators.PosixAllocator()
    with unified():
        allocators.register_allocator("mine", mine)
    assert allocators.custom_allocators["mine"] is mine
    assert not isinstance(allocators.custom_allocators.get("default"), UnifiedAllocator)


def test_pages_that_no_operator_has_used_move_once(moves):
    with unified():
        f = field("f")
        sync_host(f)
        assert moves == ["down"]
        sync_device(f)
        assert moves == ["down", "up"]


def test_more_than_the_device_has_is_refused_unless_asked_for():
    managed.check_room(6, 6, oversubscribe=False)
    with pytest.warns(OversubscriptionWarning, match=r"7B more of managed .* the 6B .*: pages that are faulted in"):
        managed.check_room(7, 6, oversubscribe=True)
    with pytest.raises(DeviceError, match=r"7B more of managed .* the 6B .* oversubscribe=True"):
        managed.check_room(7, 6, oversubscribe=False)


def test_room_is_what_the_device_has_today(monkeypatch):
    """Beside the pieces themselves, whose pages may be on the host, others take memory, managed or not."""
    cuda = pytest.importorskip("forebay.cuda.managed")
    from forebay.cuda import driver

    free, moved = 100, False
    monkeypatch.setattr(managed, "MANAGED", {})
    monkeypatch.setattr(cuda, "_alive", {})
    monkeypatch.setattr(cuda, "_place", lambda *_range: "device" if moved else None)
    monkeypatch.setattr(driver, "current_device", lambda: None)
    monkeypatch.setattr(driver, "device_memory", lambda: (free, 100))

    def allocate(nbytes):
        piece = np.empty(nbytes, np.uint8)
        cuda._alive[piece.ctypes.data] = nbytes
        return piece

    monkeypatch.setattr(cuda, "allocate", allocate)
    managed.allocate(60, oversubscribe=False)
    with pytest.raises(DeviceError, match=r"50B .* the 40B"):  # no page is there yet
        managed.allocate(50, oversubscribe=False)
    free = 70  # others took some
    with pytest.raises(DeviceError, match=r"20B .* the 10B"):
        managed.allocate(20, oversubscribe=False)
    moved = True  # pages are there
    managed.allocate(20, oversubscribe=False)
    free, moved = 120, False  # others gave theirs back, and somebody else made an array of managed memory
    cuda._alive[1] = 30
    with pytest.raises(DeviceError, match=r"15B .* the 10B"):
        managed.allocate(15, oversubscribe=False)


def test_on_a_cpu_it_is_ordinary_memory_and_said_once():
    from forebay.devito.support import warn_once

    warn_once.cache_clear()
    with pytest.warns(UserWarning, match="ordinary memory"):
        f = field("f", allocator=UnifiedAllocator())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with unified():
            devito.Operator([devito.Eq(f, f + 1)])()
    assert np.all(f.data == 2.0)
