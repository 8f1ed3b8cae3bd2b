"""Arrays that may be larger than the device, all together: moved by us and ahead of time, within a budget."""

import importlib
import sys
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from forebay import codec as codecs
from forebay.codec import Codec
from forebay.errors import BudgetError, ForebayError, StateError, needs
from forebay.machine.arrays.dispatch import array_in, named_library, view_of
from forebay.machine.host import copy_in
from forebay.machine.machine import PoolMachine, Wait
from forebay.machine.packing import handles
from forebay.machine.region import ALIGNMENT
from forebay.machine.spec import ArraySpec
from forebay.machine.virtual import VirtualPool
from forebay.memory.pool.page import Page, Values
from forebay.memory.pool.resident import Resident
from forebay.memory.pool.uses import Lease, Uses
from forebay.metrics import Metrics
from forebay.planner.drawn.counters import write_counters
from forebay.units import Budget

POOLS = "pool"
"""The name of the codec that the pool was made with."""


class Pool:
    """Arrays that live on the host and are on the device when they are needed.

    The budget is hard: the device's bytes are taken once, and everything happens inside them. Values that the host
    has are never written back. As long as the order of uses is unknown, the array used longest ago leaves; once it
    repeats, the one whose next use is farthest, and arrays are fetched before their use. Copies run beside the
    computation, both ways at once; the host waits for none of them.

    A pool is used by one thread.

    Parameters
    ----------
    budget : Budget
        Bytes of device and host, such as ``Budget(device="8GB", host="64GB")``.
    codec : str or Codec, optional
        What makes arrays smaller on the host and on the link, such as ``"bounded:1e-4"``. A lossy one changes values
        whenever changed ones leave the device. Arrays of types that it does not know are kept as they are.
    arrays : {"cupy", "torch", "numpy"} or PoolMachine
        The library whose arrays are handed out. ``"numpy"`` needs no GPU: the device is a piece of host memory, and
        copies happen in a random order that keeps every promise; use it to test code that runs on GPUs.

    Examples
    --------
    >>> import numpy as np
    >>> pool = Pool(Budget(device="3kB", host="1MB"), arrays="numpy")
    >>> a, b = pool.put(np.arange(100.0)), pool.empty((100,), "float64")
    >>> with pool.use(reads=[a], overwrites=[b]) as (A, B):
    ...     B[:] = 2 * A
    >>> pool.get(b)[:4].tolist()
    [0.0, 2.0, 4.0, 6.0]
    """

    def __init__(self, budget: Budget, codec: str | Codec | None = None, arrays: str | PoolMachine = "cupy") -> None:
        if not isinstance(budget, Budget) or set(budget.tiers) != {"device", "host"}:
            raise BudgetError(
                f"a pool needs the bytes of two tiers and has {budget!r}: give "
                "forebay.Budget(device='8GB', host='64GB'); what is on the host must fit there"
            )
        device = budget["device"] // ALIGNMENT * ALIGNMENT
        if not device:
            raise BudgetError(f"a device budget of {budget['device']} bytes holds no array")
        self.budget = budget
        self._codec = codecs.get(codec) if isinstance(codec, str) else codec
        self._machine = _machine(arrays)
        self._uses = Uses(self._machine, device, budget["host"])
        self._pager = self._uses.pager
        self._forgotten: deque[Page] = deque()
        self._keys = 0

    def put(self, array: Any, name: str | None = None, codec: str | Codec | None = POOLS) -> Resident:
        """Take the values of an array into the pool.

        Parameters
        ----------
        array
            On the host or on the device; it is copied.
        name : str, optional
            What messages call it.
        codec : str or Codec, optional
            Another than the pool's, or None.
        """
        if isinstance(array, np.ma.MaskedArray):
            raise StateError(
                "the mask of a masked array would be lost: put numpy.ma.filled(x, value), and where it matters "
                "numpy.ma.getmaskarray(x) beside it"
            )
        page = self._new(self._machine.spec(array), name, codec)
        try:
            self._take_in(page, array)
        except BaseException:
            self._pager.drop(page)
            raise
        return self._handle(page)

    def empty(
        self, shape: int | Sequence[int], dtype: Any, name: str | None = None, codec: str | Codec | None = POOLS
    ) -> Resident:
        """Make an array without values: the first use of it must write it."""
        extents = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
        if min(extents, default=0) < 0:
            raise StateError(f"an array cannot have the shape {extents}")
        return self._handle(self._new(self._machine.spec_of(extents, dtype), name, codec))

    def get(self, array: Resident) -> Any:
        """Return a copy of an array's values on the host: of NumPy, or of torch in a pool of torch's arrays."""
        page = self._page(array)
        if page.written:
            raise StateError(f"{page.name} is being written: leave its use before its values are read")
        page.check_values()
        self._collect()
        return array_in(self._pager.values(page), page.spec)

    def drop(self, array: Resident) -> None:
        """Drop an array and its values."""
        page = self._page(array)
        if page.open:
            raise StateError(f"{page.name} is in use: leave its use before it is dropped")
        self._pager.drop(page)

    def use(
        self, reads: Sequence[Resident] = (), writes: Sequence[Resident] = (), overwrites: Sequence[Resident] = ()
    ) -> Lease:
        """Hand arrays out for the body of a ``with`` statement, in the order in which they are named.

        On a GPU the body's computation is enqueued on the stream that is current on entry, and need not be waited
        for. Outside of it the arrays are not valid.

        Parameters
        ----------
        reads
            Arrays that are only read.
        writes
            Arrays that are read and written.
        overwrites
            Arrays whose every element is written before it is read: their old values are not fetched.
        """
        self._collect()
        return Lease(self._uses, *([self._page(array) for array in group] for group in (reads, writes, overwrites)))

    @property
    def metrics(self) -> Metrics:
        """What the pool has done, as far as it has ended; `wait` first to have all of it."""
        self._machine.settle()
        return self._machine.metrics

    def report(self, path: Path | str, title: str = "A pool of arrays") -> None:
        """Write a page about what it has done, which any browser opens from the disk."""
        write_counters(self.metrics, path, title, f"Arrays paged inside {self.budget!r}.")

    def wait(self) -> None:
        """Wait for everything that is under way, the computation of the last use too."""
        self._machine.finish()

    def close(self) -> None:
        """Wait, and give all memory back; the arrays of the pool are lost. Again is no error."""
        if not self._uses.closed:
            self._uses.closed = True
            try:
                self._machine.finish()
            finally:
                self._pager.host.close()
                self._machine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Copies may be under way in memory that is about to be unpinned. At the exit of the process the driver knows.
        if hasattr(self, "_uses") and not sys.is_finalizing():
            with suppress(ForebayError):
                self.close()

    def __repr__(self) -> str:
        return f"Pool({self.budget!r}, {len(self._pager.pages)} arrays)"

    def _take_in(self, page: Page, array: Any) -> None:
        values = view_of(array)
        if isinstance(values, np.ndarray) and page.codec is None:
            page.room = self._pager.host.take_exact(page.spec.nbytes)
            self._machine.sync([Wait("put: host room free", event) for event in page.room.events])
            copy_in(page.room.region.bytes, values)
            page.values = Values.CLEAN
            return
        self._pager.take_rooms([page])
        event = self._machine.fill(self._pager.region(page), array, page.waits("put"))
        page.events, page.origin = [event], "computed"
        self._pager.wrote(page)

    def _new(self, spec: ArraySpec, name: str | None, codec: str | Codec | None) -> Page:
        self._uses.check_open()
        self._collect()
        self._keys += 1
        chosen = self._codec if codec == POOLS else codecs.get(codec) if isinstance(codec, str) else codec
        if chosen is not None and not (spec.nbytes and handles(chosen, spec, self._machine.tier)):
            chosen = None
        page = Page(self._keys, name or f"array {self._keys}", spec, chosen)
        self._pager.add(page)
        return page

    def _handle(self, page: Page) -> Resident:
        handle = Resident(self, page)
        # A finalizer may run in the middle of anything: it only leaves a note.
        weakref.finalize(handle, self._forgotten.append, page).atexit = False
        return handle

    def _collect(self) -> None:
        while self._forgotten:
            page = self._forgotten.popleft()
            if page.open:  # its use keeps it for now
                self._forgotten.append(page)
                return
            self._pager.drop(page)

    def _page(self, array: Resident) -> Page:
        self._uses.check_open()
        if not isinstance(array, Resident) or array._pool is not self:
            raise StateError(
                f"{array!r:.60} is not of this pool: pool.put(x) and pool.empty(shape, dtype) give what is"
            )
        if array._page.values is Values.DROPPED:
            raise StateError(f"{array.name} was dropped from the pool")
        return array._page


def _machine(arrays: str | PoolMachine) -> PoolMachine:
    """Return a machine, or make that of the current device for a library of arrays."""
    if not isinstance(arrays, str):
        return arrays
    if arrays == "numpy":
        return VirtualPool()
    extras = {"cupy": "cuda12 or cuda13", "torch": "torch"}
    if arrays not in extras:
        raise StateError(f"no arrays are called {arrays!r}: there are 'cupy', 'torch' and 'numpy'")
    try:
        importlib.import_module(arrays)
    except ImportError as error:
        raise StateError(needs(f"a pool of {arrays}'s arrays", arrays, extras[arrays])) from error
    from forebay.cuda.driver import current_device  # these need cuda.core
    from forebay.machine.cuda_pool import CudaPool

    return CudaPool(current_device().device_id, named_library(arrays))
