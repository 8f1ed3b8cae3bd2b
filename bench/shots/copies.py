"""What a schedule does without Forebay: a blocking copy for each save and for each restore."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.codec.codec import Encoded
from shots.waves import Waves


class Copies:
    """Blocking copies of states to rooms on the host and back, encoded or not."""

    def __init__(self, waves: Waves, rooms: Sequence[NDArray[np.uint8]], codec: Codec | None) -> None:
        self.waves, self.codec, self.free = waves, codec, list(rooms)
        self.held: dict[int, tuple[NDArray[np.uint8], list[int]]] = {}
        self.spent: dict[str, list[float]] = {"save": [], "restore": []}
        self.moved, self.ratios = 0, list[float]()
        if codec is not None:
            most = max(codec.max_bytes(leaf.shape, leaf.dtype) for leaf in waves.layout.leaves)
            self.room = waves.machine.arrays.empty(most, "uint8")
            assert rooms[0].nbytes >= len(waves.layout.leaves) * most

    def save(self, step: int, state: Any) -> None:
        """Copy a state to the host."""
        machine = self.waves.machine
        machine.wait()  # the copy would do so itself, but its time is wanted alone
        begun = time.perf_counter()
        place, offset, sizes = self.free.pop(), 0, []
        for array in state.values():
            source = array
            if self.codec is not None:
                encoded = self.codec.encode(array, out=self.room)
                source = self.room[: encoded.nbytes]
            machine.down(place[offset:], source)
            sizes.append(source.nbytes)
            offset += source.nbytes
        self.held[step] = place, sizes
        self._count("save", begun, sizes)
        if self.codec is not None:
            self.ratios.append(self.waves.layout.nbytes / sum(sizes))

    def restore(self, step: int, state: Any) -> None:
        """Copy a state back, into the arrays of another."""
        machine = self.waves.machine
        machine.wait()
        begun = time.perf_counter()
        place, sizes = self.held[step]
        offset = 0
        for array, nbytes in zip(state.values(), sizes, strict=True):
            if self.codec is None:
                machine.up(array, place[offset:])
            else:
                machine.up(self.room[:nbytes], place[offset:])
                payload = machine.payload(self.room)
                encoded = Encoded(self.codec, array.shape, array.dtype, payload, lambda nbytes=nbytes: nbytes)
                self.codec.decode(encoded, out=array)
                machine.wait()
            offset += nbytes
        self._count("restore", begun, sizes)

    def drop(self, step: int) -> None:
        """Give a state's room to others."""
        self.free.append(self.held.pop(step)[0])

    def _count(self, what: str, begun: float, sizes: list[int]) -> None:
        self.spent[what].append(time.perf_counter() - begun)
        self.moved += sum(sizes)
