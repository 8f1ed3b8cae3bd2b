"""How the arrays of a snapshot are encoded into one region, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from forebay.codec import Codec, Encoded
from forebay.codec.bounded.numbers import BFLOAT16
from forebay.codec.raw import Raw
from forebay.cuda.arrays import View
from forebay.machine.machine import Coded
from forebay.machine.region import Region, aligned
from forebay.machine.spec import ArraySpec, Leaf
from forebay.tier.sectors import SECTOR, whole_sectors
from forebay.tier.space import Extent


@dataclass(frozen=True)
class Packing:
    """A codec for each array of a snapshot: the one asked for, or none where it does not know the type."""

    leaves: tuple[Leaf, ...]
    """as the codecs see them"""
    codecs: tuple[Codec, ...]
    worst: tuple[Extent, ...]
    """where each encoding begins when nothing is known of those before it, and its most bytes"""
    scratch: int = 0
    """bytes of the device that the codecs take for themselves"""
    windows: bool = False
    """whether arrays may be windows of larger ones: the host copies them aside, a device's codecs must read them"""

    @classmethod
    def of(cls, leaves: tuple[Leaf, ...], codec: Codec, tier: str) -> "Packing":
        """Choose the codec of each array, for where the arrays are."""
        leaves = tuple(leaf._replace(spec=_as_numbers(leaf.spec.stored, codec, tier)) for leaf in leaves)
        specs = [leaf.spec for leaf in leaves]
        codecs = tuple(codec if handles(codec, spec, tier) else Raw() for spec in specs)
        sizes = [codec.max_bytes(spec.shape, spec.dtype) for codec, spec in zip(codecs, specs, strict=True)]
        # What a codec takes for an array, it takes once for all that are alike.
        alike = {(codec.name, spec.shape, spec.dtype): codec for codec, spec in zip(codecs, specs, strict=True)}
        scratch = sum(codec.scratch_bytes(shape, dtype) for (_, shape, dtype), codec in alike.items())
        windows = all(codec.reads_windows(spec.shape, spec.dtype) for codec, spec in zip(codecs, specs, strict=True))
        on_device = tier == "device"
        return cls(leaves, codecs, in_a_row(sizes), scratch if on_device else 0, windows or not on_device)

    @property
    def fixed(self) -> bool:
        """Whether the size of a snapshot is known before it is encoded."""
        return all(codec.fixed for codec in self.codecs)

    @property
    def lossy(self) -> bool:
        """Whether a snapshot may come back as another than it was."""
        return any(codec.lossy for codec in self.codecs)

    @property
    def most(self) -> int:
        """Bytes of a snapshot that does not shrink."""
        return snapshot_bytes(self.worst)

    def arrays_in(self, region: Region) -> list[Region]:
        """List where the arrays lie in a region that holds them as they are."""
        return [region.cut(leaf.offset, leaf.nbytes) for leaf in self.leaves]

    def encoded(self, encodings: Region, extents: Sequence[Extent]) -> list[Encoded]:
        """List the encodings that lie in one region."""
        return [
            Encoded(codec, leaf.spec.shape, leaf.spec.dtype, _payload(encodings.cut(*extent)), partial(int, extent[1]))
            for codec, leaf, extent in zip(self.codecs, self.leaves, extents, strict=True)
        ]

    def coded(
        self,
        arrays: Sequence[Region],
        encodings: Region,
        extents: Sequence[Extent],
        strides: Sequence[tuple[int, ...] | None] = (),
    ) -> list[Coded]:
        """Pair arrays with their encodings, which lie in one region; `strides` are those of windows."""
        each = zip(self.codecs, self.leaves, arrays, extents, strides or [None] * len(self.leaves), strict=True)
        return [Coded(codec, leaf.spec, array, encodings.cut(*extent), own) for codec, leaf, array, extent, own in each]


def _payload(region: Region) -> Any:
    """Return bytes as codecs decode them, on the host or on a GPU."""
    return View.at(region.pointer, (region.nbytes,), np.uint8) if region.array is None else region.array


def handles(codec: Codec, spec: ArraySpec, tier: str) -> bool:
    """Tell whether a codec knows such arrays where they are."""
    return codec.handles_on_device(spec.shape, spec.dtype) if tier == "device" else codec.handles(spec.dtype)


def _as_numbers(spec: ArraySpec, codec: Codec, tier: str) -> ArraySpec:
    """Return a spec whose type is that of its numbers, where NumPy has none for it and a codec knows them."""
    numbers = spec._replace(dtype=BFLOAT16)
    is_bfloat16 = str(spec.kind) == "torch.bfloat16"  # without loading torch
    return numbers if is_bfloat16 and not handles(codec, spec, tier) and handles(codec, numbers, tier) else spec


def in_a_row(sizes: Sequence[int]) -> tuple[Extent, ...]:
    """Lay so many bytes each one after the other."""
    starts = accumulate(map(aligned, sizes), initial=0)
    return tuple(Extent(start, size) for start, size in zip(starts, sizes, strict=False))


def snapshot_bytes(extents: Sequence[Extent]) -> int:
    """Return the bytes of a snapshot in whole sectors of a disk."""
    return max([SECTOR, *(whole_sectors(extent.offset + extent.nbytes) for extent in extents[-1:])])
