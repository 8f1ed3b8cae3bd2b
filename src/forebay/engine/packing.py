"""How the arrays of a snapshot are encoded into one block, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.codec.raw import Raw
from forebay.engine.layout import BLOCK, Layout, Leaf
from forebay.machine.region import aligned


class Place(NamedTuple):
    """Where the encoding of one array lies in a block."""

    offset: int
    nbytes: int


@dataclass(frozen=True)
class Packing:
    """A codec for each array of a layout: the one asked for, or none where it does not know the type."""

    codecs: tuple[Codec, ...]
    worst: tuple[Place, ...]
    """where each encoding begins when nothing is known of those before it, and its most bytes"""
    scratch: int = 0
    """bytes of the device that the codecs take for themselves"""

    @classmethod
    def of(cls, layout: Layout, codec: Codec, tier: str) -> "Packing":
        """Choose the codec of each array, for where the arrays are."""

        def handles(leaf: Leaf) -> bool:
            on_device = tier == "device"
            return codec.handles_on_device(leaf.shape, leaf.dtype) if on_device else codec.handles(leaf.dtype)

        codecs = tuple(codec if handles(leaf) else Raw() for leaf in layout.leaves)
        sizes = [one.max_bytes(leaf.shape, leaf.dtype) for one, leaf in zip(codecs, layout.leaves, strict=True)]
        # What a codec takes for an array, it takes once for all that are alike.
        alike = {(one.name, leaf.shape, leaf.dtype): one for one, leaf in zip(codecs, layout.leaves, strict=True)}
        scratch = sum(one.scratch_bytes(shape, dtype) for (_, shape, dtype), one in alike.items())
        return cls(codecs, _in_a_row(sizes), scratch if tier == "device" else 0)

    @property
    def fixed(self) -> bool:
        """Whether the size of a snapshot is known before it is encoded."""
        return all(codec.fixed for codec in self.codecs)

    @property
    def most(self) -> int:
        """Bytes of a snapshot that does not shrink."""
        return extent(self.worst)

    def places(self, sizes: Sequence[int]) -> tuple[Place, ...]:
        """Lay encodings of these sizes one after the other."""
        return _in_a_row(sizes)


def _in_a_row(sizes: Sequence[int]) -> tuple[Place, ...]:
    starts = accumulate(map(aligned, sizes), initial=0)
    return tuple(Place(start, size) for start, size in zip(starts, sizes, strict=False))


def extent(places: Sequence[Place]) -> int:
    """Give the bytes of a snapshot in whole blocks."""
    return max(BLOCK, -(-(places[-1].offset + places[-1].nbytes) // BLOCK) * BLOCK)


def encode(packing: Packing, staging: NDArray[np.uint8], arrays: Sequence[NDArray[Any]]) -> list[int]:
    """Encode host arrays, each into its worst place, and give the sizes."""
    return [
        codec.encode_host(np.ascontiguousarray(array), staging[start : start + most])
        for codec, (start, most), array in zip(packing.codecs, packing.worst, arrays, strict=True)
    ]


def gather(packing: Packing, staging: NDArray[np.uint8], places: Sequence[Place], target: NDArray[np.uint8]) -> None:
    """Copy encodings from their worst places to those they get."""
    for (source, _), (start, size) in zip(packing.worst, places, strict=True):
        target[start : start + size] = staging[source : source + size]


def decode(packing: Packing, places: Sequence[Place], block: NDArray[np.uint8], arrays: Sequence[NDArray[Any]]) -> None:
    """Decode a block into host arrays."""
    for codec, (start, size), array in zip(packing.codecs, places, arrays, strict=True):
        codec.decode_host(block[start : start + size], array)
