"""What is moved with the planes of a model: each array's part of a plane, where it is at home and in the window."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.machine.machine import Pair
from forebay.machine.region import Region, aligned
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.imaging import Imaging, Sensing
from forebay.wave.paged.course import Planes, Span, Visit
from forebay.wave.survey.points import REACH

Look = Imaging | Sensing
"""What is made of the last step back."""


@dataclass(frozen=True)
class FieldPage:
    """An array whose first axis is that of planes, or some of them."""

    name: str
    first: int
    """the plane of the model that its first one belongs to"""
    shape: tuple[int, ...]
    written: bool = True
    """whether a pass changes it"""
    stays: bool = False
    """whether the window has room for all of its planes, where others have some that change"""

    @property
    def planes(self) -> Span:
        """The planes that it has."""
        return self.first, self.first + self.shape[0]


@dataclass(frozen=True)
class Window:
    """How memory is shared by pages, with room for so many planes of those that do not stay."""

    pages: tuple[FieldPage, ...]
    itemsize: int
    room: int

    def plane_bytes(self, page: FieldPage) -> int:
        """Return the bytes of a plane."""
        return prod(page.shape[1:]) * self.itemsize

    def held(self, page: FieldPage) -> int:
        """Return how many of its planes the window has room for."""
        return page.shape[0] if page.stays else self.room

    @property
    def places(self) -> dict[str, int]:
        """Where the memory of each page begins."""
        found, at = {}, 0
        for page in self.pages:
            found[page.name] = at
            at += aligned(self.held(page) * self.plane_bytes(page))
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return sum(aligned(self.held(page) * self.plane_bytes(page)) for page in self.pages)

    def first(self, page: FieldPage, origin: int) -> int:
        """Return the plane, there or not, that lies where a page's memory begins."""
        return page.first if page.stays else origin

    def moves(self, span: Span, origin: int, memory: Region, home: dict[str, Region], back: bool) -> list[Pair]:
        """Return the copies that bring planes into the window, or back."""
        pairs, places = list[Pair](), self.places
        for page in self.pages:
            begin, end = max(span[0], page.first), min(span[1], page.planes[1])
            if begin >= end or (back and not page.written):
                continue
            size = self.plane_bytes(page)
            there = memory.cut(places[page.name] + (begin - self.first(page, origin)) * size, (end - begin) * size)
            own = home[page.name].cut((begin - page.first) * size, (end - begin) * size)
            pairs.append((own, there) if back else (there, own))
        return pairs

    def shift(self, visit: Visit, memory: Region) -> list[Pair]:
        """Return the copies that move planes inside the window, in an order in which none is lost."""
        assert visit.moved is not None
        (begin, end), before = visit.moved
        pairs, places, step = list[Pair](), self.places, abs(visit.origin - before)
        pieces = [(plane, min(plane + step, end)) for plane in range(begin, end, step)]
        if before > visit.origin:  # they are moved away from the beginning
            pieces = [(max(begin, plane - step), plane) for plane in range(end, begin, -step)]
        for page in self.pages:
            place, size = places[page.name], self.plane_bytes(page)
            for first, stop in pieces:
                lo, hi = max(first, page.first), min(stop, page.planes[1])
                if lo < hi and not page.stays:
                    source = memory.cut(place + (lo - before) * size, (hi - lo) * size)
                    pairs.append((memory.cut(place + (lo - visit.origin) * size, (hi - lo) * size), source))
        return pairs


def pages_of(shape: tuple[int, ...], layers: AcousticLayers) -> tuple[FieldPage, ...]:
    """Return the pages of acoustic waves: fields, velocities, and both memories of each layer."""
    pages = [FieldPage("p", 0, shape), FieldPage("p_old", 0, shape), FieldPage("squared", 0, shape, written=False)]
    for number, side in enumerate(layers.sides):
        across = side.axis == 0
        for kind in ("psi", "zeta"):
            pages.append(FieldPage(f"{kind} {number}", side.start if across else 0, side.shape, stays=across))
    return tuple(pages)


def looking_pages(shape: tuple[int, ...], window: tuple[slice, ...]) -> dict[type[Look], tuple[FieldPage, ...]]:
    """Return what a pass has besides where something is made of its last step: images cover a part of the fields."""
    first, seen = window[0].start, tuple(side.stop - side.start for side in window)
    records = FieldPage("seen", first, seen, written=False), FieldPage("record", 0, shape, written=False)
    return {
        Imaging: (records[0], FieldPage("image", first, seen), FieldPage("light", first, seen)),
        Sensing: (records[1], FieldPage("total", 0, shape)),
    }


def homes(state: dict[str, Any], squared: NDArray[Any], layers: AcousticLayers, look: Look | None) -> dict[str, Region]:
    """Return where the pages of a pass are at home."""
    found = {"p": home(state["p"]), "p_old": home(state["p_old"]), "squared": home(squared)}
    for number, side in enumerate(layers.sides):
        size = side.size * squared.itemsize
        begin, remembered = side.offset * squared.itemsize, home(state["pml"])
        found |= {f"psi {number}": remembered.cut(begin, size), f"zeta {number}": remembered.cut(begin + size, size)}
    if isinstance(look, Imaging):
        found |= {"seen": home(look.record), "image": home(look.image), "light": home(look.illumination)}
    elif isinstance(look, Sensing):
        found |= {"record": home(look.record), "total": home(look.total)}
    return found


def home(array: NDArray[Any]) -> Region:
    """Return the memory of an array of the host; of one with gaps, which is only read, that of a copy."""
    array = np.ascontiguousarray(array)
    return Region(int(array.ctypes.data), array.nbytes, array.reshape(-1).view(np.uint8))


def planes_of(shape: Sequence[int], radius: int, layers: AcousticLayers) -> Planes:
    """Return what passes must know of fields of a shape.

    Layers of planes, with all they change, are never cut, nor what is mirrored above a free surface.
    """
    across = [side for side in layers.sides if side.axis == 0]
    ends = {side.start - side.lead: side.lead + side.count + side.trail for side in across}
    after = max([0, *(depth for start, depth in ends.items() if start + depth == shape[0] - radius)])
    before, least = ends.get(radius, 0), radius + 1
    return Planes(shape[0], radius, max(radius, REACH), max(before, least), max(after, least))
