"""What pager and codecs of a pool share: the memory of both sides, the pages, and the count of what moves."""

from collections import Counter

from forebay.machine.machine import PoolMachine
from forebay.machine.region import Region
from forebay.memory.pool.host import HostMemory
from forebay.memory.pool.page import Page
from forebay.tier.heap import Heap


class PoolMemory:
    """The memory of a pool."""

    def __init__(self, machine: PoolMachine, device: int, host: int) -> None:
        self.machine = machine
        self.host = HostMemory(host, machine)
        self.heap = Heap(device, passed=machine.passed)
        self.pages: dict[int, Page] = {}
        self._per_use: Counter[str] = Counter()  # bytes that copies before and after every use would have moved
        machine.reserve(0, device)

    def region(self, page: Page) -> Region:
        """Return the place of a page on the device."""
        assert page.offset is not None
        return self.machine.region(0, page.offset, page.spec.nbytes)

    def join(self) -> None:
        """Make one piece of free pieces that lie side by side."""
        if left := self.heap.nbytes - self.heap.used:
            self.heap.fits(left)  # the heap joins them when it is asked for more than one has

    def count(self, lane: str, *, moved: int = 0, per_use: int = 0) -> None:
        """Count bytes that moved, and those that copies before and after every use would have moved."""
        metrics = self.machine.metrics
        if moved:
            metrics.moved[lane] += moved
        self._per_use[lane] += per_use
        metrics.avoided[lane] = max(0, self._per_use[lane] - metrics.moved[lane])
