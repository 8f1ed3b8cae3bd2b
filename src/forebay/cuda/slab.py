"""Memory taken once and cut into slots by its user: one allocation on the device, one pinned range on the host."""

import mmap
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

import numpy as np
from cuda.bindings import driver
from cuda.core import Stream
from numpy.typing import NDArray

from forebay.cuda.available import KEPT_FROM, KEPT_PIECE
from forebay.cuda.driver import checked, current_context, current_device, release
from forebay.cuda.pool import DevicePool, allocated
from forebay.errors import DeviceError
from forebay.processors import processors
from forebay.tasks import Workers
from forebay.units import to_text

HUGE_PAGE = 2**21
"""Bytes of a huge page; the pieces that threads touch end on its multiples, so that no two fault the same page."""
MOST_TOUCHING_THREADS = 16


class _Slab:
    """What both slabs have: an address, a size, and an end."""

    pointer: int
    """Where it begins; 0 once closed, so that a late use cannot reach what others have put there."""
    nbytes: int
    _release: "weakref.finalize[..., Self]"

    def close(self) -> None:
        """Free the memory; again is no error. Wait for the copies that use it before."""
        self._release()
        self.pointer = 0

    def _release_with(self, finalize: "weakref.finalize[..., Self]") -> None:
        # At the exit of the process the driver takes everything back by itself, and faster.
        finalize.atexit = False
        self._release = finalize

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({to_text(self.nbytes)} at {self.pointer:#x})"


class DeviceSlab(_Slab):
    """One plain allocation on the current device.

    Parameters
    ----------
    nbytes : int
        Its exact size.

    Raises
    ------
    DeviceError
        Where the device has not that much memory free.
    """

    def __init__(self, nbytes: int) -> None:
        _check_size(nbytes)
        current_device()
        self.nbytes, self.pointer = nbytes, allocated(driver.cuMemAlloc(nbytes), nbytes)
        self._release_with(weakref.finalize(self, release, current_context(), driver.cuMemFree, self.pointer))


class PinnedSlab(_Slab):
    """Page-locked host memory of exactly the size asked for, which copies reach at the full speed of the link.

    ``cudaHostAlloc`` clears and locks small pages on one thread. This maps the range, asks for huge pages, touches
    them on many threads, and has the driver lock what is there: there are fewer pages, and nothing is left to clear.

    Parameters
    ----------
    nbytes : int
        Its exact size.

    Attributes
    ----------
    array : numpy.ndarray
        All of it, as bytes. Arrays made from it outlive `close` safely, but are then no longer pinned, and hold zeros.
    """

    array: NDArray[np.uint8]

    def __init__(self, nbytes: int) -> None:
        _check_size(nbytes)
        current_device()
        try:
            mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise DeviceError(f"the host has no {to_text(nbytes)} to pin: give a smaller host budget") from error
        with suppress(OSError):  # a kernel built without huge pages; the range is then pinned in small ones
            mapping.madvise(mmap.MADV_HUGEPAGE)
        # Locked pages cannot be shared copy-on-write: a fork would copy every one of them at once into the child.
        mapping.madvise(mmap.MADV_DONTFORK)
        self.nbytes = nbytes
        self._mapping = mapping
        self.array = np.frombuffer(mapping, dtype=np.uint8, count=nbytes)
        _touch(self.array)
        self.pointer = self.array.ctypes.data
        checked(
            driver.cuMemHostRegister(self.pointer, nbytes, driver.CU_MEMHOSTREGISTER_PORTABLE),
            f"pinning {to_text(nbytes)} of host memory",
        )
        unregister = driver.cuMemHostUnregister
        # The mapping goes along: unmapped before it is unregistered, its addresses could be handed out again as pinned.
        self._release_with(weakref.finalize(self, release, current_context(), unregister, self.pointer, mapping))

    def close(self) -> None:
        """Unpin and unmap; again is no error. Wait for the copies that use it before."""
        super().close()
        with suppress(ValueError):  # it has been unmapped
            self._mapping.madvise(mmap.MADV_DONTNEED)  # whoever still refers to the range does not keep its pages
        self.array = np.empty(0, dtype=np.uint8)  # the last reference to the mapping unmaps it


@contextmanager
def kept_pinned(nbytes: int) -> Iterator[PinnedSlab]:
    """Lend a pinned slab of at least `nbytes` that the process keeps afterwards, because pinning is slow.

    It is lent to one borrower at a time: whoever asks in between gets another, and the larger of the two is kept.
    One that is too small is let go before the larger one is made. Wait for your copies before leaving the context.

    Parameters
    ----------
    nbytes : int
        The least size; the slab may be larger.
    """
    slab = _take(nbytes)
    try:
        yield slab
    finally:
        _give_back(slab)


@contextmanager
def kept_device(nbytes: int, stream: Stream) -> Iterator[int]:
    """Lend memory of the current device, of which the process keeps what is large: to free 54 GB takes 25 ms.

    Whoever else of the process asks the driver for memory is given what is kept and not lent; who asks here for another
    size has it freed. Wait for all work with it but that of `stream` before leaving the context.

    Parameters
    ----------
    nbytes : int
        Its size; less than `KEPT_FROM` is not kept.
    stream : cuda.core.Stream
        The stream in whose order it is given back.
    """
    if nbytes < KEPT_FROM:
        give_up_device()
        with DeviceSlab(nbytes) as slab:
            yield slab.pointer
        return
    if not nbytes <= _device_memory.idle_bytes() < nbytes + KEPT_PIECE:
        give_up_device()  # too little, or more than this budget allows
    with _device_memory.lend(nbytes, stream) as pointer:
        stream.sync()
        yield pointer


def kept_device_bytes() -> int:
    """Return the bytes of the current device that are kept for the next borrower."""
    return _device_memory.idle_bytes()


def give_up_device() -> None:
    """Free what is kept of the current device and not lent."""
    _device_memory.give_up()


def kept_bytes() -> int:
    """Return the bytes that are kept for the next borrower."""
    with _lock:
        return sum(slab.nbytes for slab in _kept)


_device_memory = DevicePool()
_kept: list[PinnedSlab] = []  # one, or none while it is lent
_lock = threading.Lock()


def _take(nbytes: int) -> PinnedSlab:
    with _lock:
        slab = _kept.pop() if _kept else None
    if slab is not None and slab.nbytes < nbytes:
        slab.close()
        slab = None
    return slab or PinnedSlab(nbytes)


def _give_back(slab: PinnedSlab) -> None:
    with _lock:
        _kept.append(slab)
        _kept.sort(key=lambda slab: slab.nbytes)
        spare = _kept[:-1]
        del _kept[:-1]
    for slab in spare:
        slab.close()


def _touch(array: NDArray[np.uint8]) -> None:
    """Have the kernel give a page everywhere; NumPy releases the GIL while it writes."""
    threads = min(MOST_TOUCHING_THREADS, processors())
    step = -(-array.nbytes // (threads * HUGE_PAGE)) * HUGE_PAGE
    pieces = [array[start : start + step : mmap.PAGESIZE] for start in range(0, array.nbytes, step)]
    if len(pieces) == 1:  # threads would take longer to start than they save
        pieces[0].fill(0)
        return
    workers = Workers(threads, "forebay-touch")
    try:
        for task in [workers.submit(piece.fill, 0) for piece in pieces]:
            task.result()
    finally:
        workers.close(cancel=True)


def _check_size(nbytes: int) -> None:
    if nbytes < 1:
        raise ValueError(f"a slab of {nbytes} bytes: it must hold at least one")
