"""Arrays that are smaller on the host: encoded and decoded on the device, on their way over the link.

Encodings pass through rooms of their own on the device, which count against its budget, so that the link carries one
while the next is encoded. The size of an encoding is often known only once its encoder has run. Nobody waits for that:
the place of the array is free as soon as it is encoded, and its encoding goes down when its size has arrived.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import BudgetError
from forebay.machine.machine import Coded, Wait
from forebay.machine.region import Region, aligned
from forebay.memory.pool.host import HostRoom, enough
from forebay.memory.pool.page import Outgoing, Page, PoolMemory, Staging
from forebay.units import to_text

SHARE = 4
"""The part of the device, one in so many, up to which encodings get two rooms each way, and one above."""


class Coding:
    """The codecs of a pool, in its memory; `empty` lets everything leave the device that may."""

    def __init__(self, places: PoolMemory, empty: Callable[[], None]) -> None:
        self._places, self._empty = places, empty
        self._size = 0
        self._up: deque[Staging] = deque()
        self._down: deque[Staging] = deque()
        self._pending: deque[Page] = deque()  # encodings whose sizes are not known yet, the oldest first

    @property
    def nbytes(self) -> int:
        """Bytes of the device that encodings on their way take."""
        return self._size * (len(self._up) + len(self._down) + len(self._pending))

    def beside(self, arrays: int) -> int:
        """Return the bytes that they would take of a device which has so many for arrays."""
        pair, rounded = 2 * self._size, 1.01  # budgets are named in three digits
        return pair if 4 * self._size * SHARE > rounded * (arrays + pair) else 2 * pair

    def to_come(self, page: Page) -> list[int]:
        """List the most bytes that the encodings of other arrays take, of those that the host has none of."""
        others = (other for other in self._places.pages.values() if other is not page and other.room is None)
        return [_most(other) for other in others if other.codec is not None]

    def prepare(self, page: Page) -> None:
        """Make sure that there is room for a new array, and for its encodings to pass through beside any other."""
        if 2 * max(self._size, _most(page)) + page.size > self._places.heap.nbytes:
            self.shrink()
        most, largest, device = max(self._size, _most(page)), page, self._places.heap.nbytes
        if most > self._size:  # the arrays that are there must find room beside
            largest = max((page, *self._places.pages.values()), key=lambda other: other.size)
        needed = 2 * most + largest.size
        if needed > device:
            passing = ", for itself and for encodings on their way" if most else ""
            others = "" if largest is page else f", with which {page.name} is put into the pool"
            raise BudgetError(
                f"{largest.name} of {to_text(largest.spec.nbytes)} needs {to_text(needed)} of the device{passing}"
                f"{others}, but the budget is {to_text(device)}: split it, or give Budget(device={enough(needed)!r}) "
                "or more"
            )
        two = 4 * most + largest.size <= device  # rooms each way
        if most > self._size:
            self._resize(most, 2 if two and 4 * most * SHARE <= device else 1)
        elif not two and self.nbytes > 2 * most:
            self._resize(most, 1)

    def shrink(self, arrays: int = 0) -> None:
        """Keep no larger rooms than the arrays that are left need, and no more beside so many bytes of arrays."""
        most = max(map(_most, self._places.pages.values()), default=0)
        each_way = len(self._up) if most else 0
        if arrays + 2 * each_way * most > self._places.heap.nbytes:
            each_way = min(1, each_way)
        if (most, each_way) != (self._size, len(self._up)):
            self._resize(most, each_way)

    def lay_anew(self) -> None:
        """Take the rooms again, beside each other where nothing is in between."""
        self._resize(self._size, len(self._up))

    def store(self, page: Page) -> None:
        """Encode a page, and send what becomes of it down as soon as its size is known."""
        assert page.codec is not None
        if page.outgoing is not None:  # one that found no room on the host
            self.discard(page)
        self.settle_arrived()
        if not self._down:
            self.settle(self._pending[0])
        staging = self._down.popleft()
        free = [Wait("encode: staging free", event) for event in staging.events]
        most = page.codec.max_bytes(page.spec.shape, page.spec.dtype)
        coded = [Coded(page.codec, page.spec, self._places.region(page), self._region(staging, most))]
        encoding = self._places.machine.encode("codec", page.key, coded, [*page.waits("encode"), *free])
        page.outgoing = Outgoing(encoding, staging)
        staging.events = page.events = [encoding.event]
        page.origin = "encoded"
        self._pending.append(page)
        self.settle_arrived()

    def settle_arrived(self) -> None:
        """Send those encodings down whose sizes have arrived, in their order."""
        while self._pending:
            outgoing = self._pending[0].outgoing
            assert outgoing is not None
            if not outgoing.encoding.arrived():
                return
            self.settle(self._pending[0])

    def settle(self, page: Page) -> None:
        """Send an encoding down, waiting for its size."""
        assert page.outgoing is not None
        encoding, staging = page.outgoing
        (nbytes,) = encoding.sizes()
        room = self._places.host.take(nbytes, page.name, partial(self.to_come, page))
        free = [Wait("store: encoding's room free", event) for event in room.events]
        pairs = [(room.region, self._region(staging, nbytes))]
        after = [Wait("store: encoded", encoding.event), *free]
        room.stored = self._places.machine.copies("down 1", "store", page.key, pairs, after)
        page.room = room
        self._places.count("down 1", moved=nbytes)
        self._places.machine.metrics.ratios.add(page.spec.nbytes, nbytes)
        self._release(page, room.stored)

    def discard(self, page: Page) -> None:
        """Discard an encoding whose array was overwritten meanwhile."""
        assert page.outgoing is not None
        self._release(page, page.outgoing.encoding.event)

    def fetch(self, page: Page, room: HostRoom, stored: Sequence[Wait]) -> Any:
        """Send the encoding in a room up and decode it, and return the event of the end."""
        assert page.codec is not None
        machine = self._places.machine
        staging = self._up.popleft()
        self._up.append(staging)
        payload = self._region(staging, room.region.nbytes)
        free = [Wait("fetch: staging free", event) for event in staging.events]
        room.read = machine.copies("up 1", "fetch", page.key, [(payload, room.region)], [*free, *stored])
        coded = [Coded(page.codec, page.spec, self._places.region(page), payload)]
        event = machine.decode("codec", page.key, coded, [Wait("decode: fetched", room.read), *page.waits("decode")])
        staging.events = [event]
        return event

    def decoded(self, page: Page) -> NDArray[np.uint8]:
        """Decode a page on the host, from there or from where its encoding waits for room."""
        assert page.codec is not None
        if page.outgoing is not None:
            encoding, staging = page.outgoing
            waiting = self._region(staging, *encoding.sizes())
            payload = self._places.machine.read(waiting, [Wait("get: encoded", encoding.event)])
        else:
            assert page.room is not None
            payload = page.room.region.bytes
        array = np.empty(page.spec.shape, page.spec.dtype)
        page.codec.decode_host(payload, array)
        return array.reshape(-1).view(np.uint8)

    def _release(self, page: Page, event: Any) -> None:
        assert page.outgoing is not None
        self._pending.remove(page)
        page.outgoing.staging.events = [event]
        self._down.append(page.outgoing.staging)
        page.outgoing = None

    def _resize(self, size: int, each_way: int) -> None:
        """Exchange the rooms for others; whatever is on the device leaves first, through the rooms there are."""
        self._empty()
        while self._pending:
            self.settle(self._pending[0])
        before = self._size, len(self._up)
        for staging in (*self._up, *self._down):
            self._places.heap.give(staging.offset, staging.nbytes, staging.events)
        if not self._take(size, each_way):
            self._take(*before)  # where they were, if nowhere else
            raise BudgetError(
                "there is no room for encodings between the arrays of open uses: put arrays with a codec into the "
                "pool before"
            )

    def _take(self, size: int, each_way: int) -> bool:
        """Take rooms, all or none."""
        heap = self._places.heap
        if left := heap.nbytes - heap.used:
            heap.fits(left)  # it joins free pieces that lie side by side when it is asked for more than one has
        rooms: list[Staging] = []
        for _ in range(2 * each_way):
            taken = heap.take(size)
            if taken is None:
                for staging in rooms:
                    heap.give(staging.offset, size, staging.events)
                return False
            rooms.append(Staging(taken[0], size, taken[1]))
        self._size, self._up, self._down = size, deque(rooms[:each_way]), deque(rooms[each_way:])
        return True

    def _region(self, staging: Staging, nbytes: int) -> Region:
        return self._places.machine.region(0, staging.offset, nbytes)


def _most(page: Page) -> int:
    """Return the bytes of the device that an encoding of a page may take."""
    return 0 if page.codec is None else aligned(page.codec.max_bytes(page.spec.shape, page.spec.dtype))
