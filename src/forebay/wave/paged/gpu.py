"""The steps of a visit for a window on a GPU: the kernels of ``volume.cu`` on the planes that are there.

Kernels are told planes by their numbers in the model, and addresses at which its first plane would be. Each pass
launches the same kernels with the same arguments as the one before, but for what is sent and heard.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.machine.region import Region
from forebay.wave.acoustic.gpu import THREADS
from forebay.wave.acoustic.volume import VolumeKernels
from forebay.wave.acoustic.zones import zone_table, zones_of
from forebay.wave.imaging import Imaging, Sensing
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.rows import WORD
from forebay.wave.paged.course import Span, Visit
from forebay.wave.paged.pages import Look, Window
from forebay.wave.paged.points import PassPoints
from forebay.wave.survey.points import Points

AXIS, MARCH, LINES = 1, slice(2, 4), slice(5, 7)
"""Columns of a table of zones: the axis of the march, where that begins and ends, and its lines."""
Call = tuple[Launch, dict[str, Any]]
"""A launch, and the arguments that it has this time."""


class WindowKernels(VolumeKernels):
    """The kernels of a volume, for some of its planes."""

    def __init__(self, *about: Any, **options: Any) -> None:
        super().__init__(*about, **options)
        self._same: dict[tuple[Any, ...], tuple[Launch, NDArray[np.int32], int]] = {}
        self._tables: list[Any] = []  # kept, for launches know their addresses alone

    def _check_size(self, shape: tuple[int, ...]) -> None:
        """Take fields of any size: cells are counted from where a window begins."""

    def launches(
        self, propagator: Any, planes: Span, back: bool, look: type[Look] | None, places: dict[str, Any]
    ) -> list[Call]:
        """Return what computes some planes in a step, which lie at some places.

        Between layers of planes the same launch serves all that are as many, with a table that is moved: to prepare
        each anew takes as long as some of its steps.
        """
        layers, sensed = propagator.layers, look is Sensing
        name = "retreat_and_sense" if sensed else "retreat" if back else "advance"
        fields = {name: places[name] for name in ("p", "old", "squared", "memory", "sides")}
        seen = {"record": places["record"], "total": places["total"], "factor": 0.0} if sensed else {}
        image = self._image_of(planes, places) if look is Imaging else []

        def stencil() -> Launch:
            return self._step_of(name, None, propagator.weights, layers, seen, planes)

        across = ((side.start, side.start + side.count) for side in layers.sides if side.axis == 0)
        if any(start < planes[1] and planes[0] < stop for start, stop in across):
            changes = self._changes_of(None, propagator.weights, layers, back, planes)
            calls = [(change, fields | seen) for change in changes]
            return [*calls, (stencil(), fields | seen | {"planes": places["stop"]}), *image]
        key = planes[1] - planes[0], back, sensed
        if key not in self._same:
            zones = zones_of(layers.sides, self._some(planes))
            self._same[key] = stencil(), zone_table(zones, lambda zone: self._tiles(layers, zone))[0], planes[0]
        launch, known, first = self._same[key]
        table = known.copy()
        table[table[:, AXIS] == 0, MARCH] += planes[0] - first
        table[table[:, AXIS] == 1, LINES] += planes[0] - first
        return [(launch, fields | seen | {"table": self.put_table(table), "planes": places["stop"]}), *image]

    def put_table(self, table: NDArray[np.int32]) -> int:
        """Bring a table to the device for as long as these kernels are there, and return its address."""
        self._tables.append(self.device.arrays.asarray(table, np.int32))
        return int(self.device.address(self._tables[-1]))

    def _image_of(self, planes: Span, places: dict[str, Any]) -> list[Call]:
        """Return what makes an image of some planes after the stencil, if it covers any of them."""
        first, covered = self._covered["first_plane"], self._covered["seen_planes"]
        begin, end = max(planes[0], first), min(planes[1], first + covered)
        if begin >= end:
            return []
        part = self._covered | {"first_plane": begin, "seen_planes": end - begin}
        words = part["seen_rows"] * part["seen_words"]
        before = (begin - first) * words * WORD * self.dtype.itemsize
        arguments = {"record": places["seen"] + before, "p": places["old"]}
        arguments |= {name: places[name] + before for name in ("image", "light")} | {"factor": 0.0}
        grid = -(-words // THREADS), min(end - begin, 65535), 1
        return [(self._listed("correlate", grid, arguments | self._field | part), arguments)]

    def points(self, points: PassPoints, planes: Span, first: int) -> tuple[Launch | None, int]:
        """Return what sends and hears in some planes, if anything does, and how many listeners are before.

        Cells are counted from a first plane on: where there is a free surface above them, that of the model.
        """
        (senders, factors), (listeners, before) = points.sending(planes), points.listening(planes)
        if not len(senders.touched) and listeners is None:
            return None, 0
        launch = self._points_of(senders if len(senders.touched) else None, factors, listeners)
        # Numbers of planes before the first one are below 0, in 32 bits.
        launch.set(mirrored=0 if first else self._mirrored, first_plane=(self.window[0].start - first) % 2**32)
        return launch, before

    def add(self, field: Any, points: Points, values: Any, factors: Any) -> None:
        """Add values at points to cells that are not those of a field."""
        launch = self._points_of(points, factors, None)
        launch.set(field=field, values=values, mirrored=0)
        launch(self.device.stream())


class Prepared(NamedTuple):
    """A step of a visit."""

    launches: list[Call]
    points: Launch | None
    field: int
    """where the field that is sent to begins in the window"""
    heard: int
    """where the one that is heard does"""
    first: int
    """listeners before those that hear"""
    seen: dict[str, int]
    """where an image and its record are, which is made of the step"""


@dataclass
class Passage:
    """What all passes of a run send, hear and look at."""

    numbers: Sequence[int]
    sent: Any
    heard: NDArray[Any] | None
    rows: Any
    """what is heard, on the device"""
    look: Look | None
    done: set[int]
    """steps that were computed here"""


class GpuSteps:
    """What passes compute on a GPU."""

    def __init__(
        self,
        kernels: WindowKernels,
        propagator: Any,
        window: Window,
        memory: Region,
        points: PassPoints,
        back: bool,
    ) -> None:
        self._kernels, self._propagator, self._window, self._memory = kernels, propagator, window, memory
        self._points, self._back, self._cells = points, back, prod(window.pages[0].shape[1:])
        self._prepared: dict[tuple[Visit, bool, type | None], list[Prepared]] = {}
        self._passage: Passage | None = None

    def begin(self, numbers: Sequence[int], sent: Any, heard: Any, look: Look | None) -> None:
        """Take what steps of some numbers send, where to put what they hear, and what is made of the last one."""
        kernels = self._kernels
        there = kernels.put(np.ascontiguousarray(sent[min(numbers) : max(numbers) + 1]))
        rows = None if heard is None else kernels.zeros((len(numbers), heard.shape[1]))
        self._passage = Passage(numbers, there, heard, rows, look, set())

    def compute(self, numbers: Sequence[int], odd: bool, visit: Visit) -> None:
        """Take a visit's planes through steps of some numbers: each sends a row of values, and hears into another."""
        assert self._passage is not None
        all_numbers, sent, _, rows, look, done = vars(self._passage).values()
        done.update(numbers)
        device, first = self._kernels.device, min(all_numbers)
        stream, now = device.stream(), type(look) if look and numbers[-1] == all_numbers[-1] else None
        values, row = device.address(sent), sent.itemsize * sent.shape[1]
        for number, prepared in zip(numbers, self._prepare(visit, odd, now), strict=True):
            factor = {"factor": float(look.factor)} if now and number == numbers[-1] else {}
            for launch, arguments in prepared.launches:
                launch.set(**(arguments | factor if "factor" in arguments else arguments))
                launch(stream)
            if prepared.points is not None:
                heard = 0 if rows is None else device.address(rows[number - first]) + rows.itemsize * prepared.first
                prepared.points.set(field=prepared.field, values=values + (number - first) * row)
                prepared.points.set(heard=prepared.heard, out=heard, **prepared.seen, **factor)
                prepared.points(stream)

    def finish(self) -> None:
        """Bring home what was heard, once all is computed."""
        assert self._passage is not None
        if self._passage.heard is not None and self._passage.done:
            done, first = np.array(sorted(self._passage.done)), min(self._passage.numbers)
            self._passage.heard[done[:, None], self._points.order] = self._kernels.get(self._passage.rows)[done - first]
        self._passage = None

    def _prepare(self, visit: Visit, odd: bool, look: type[Look] | None) -> list[Prepared]:
        """Return the steps of a visit, of whose last one something may be made; they are prepared once."""
        if (visit, odd, look) not in self._prepared:
            kernels, steps, places = self._kernels, list[Prepared](), self._places(visit)
            names = ("p_old", "p") if odd else ("p", "p_old")
            first = visit.window[0]
            points = self._points.within(visit.computes, first * self._cells, kernels.put)
            begin = {name: places[name] + first * self._window.itemsize * self._cells for name in names}
            for number, planes in enumerate(visit.steps):
                p, old = names
                now = look if number == len(visit.steps) - 1 else None
                fields = places | {"p": places[p], "old": places[old]}
                launches = kernels.launches(self._propagator, planes, self._back, now, fields)
                launch, before = kernels.points(points, planes, first)
                seen = {name: places[name] for name in ("seen", "image")} if now is Imaging else {}
                steps.append(Prepared(launches, launch, begin[old], begin[p], before, seen))
                names = old, p
            self._prepared[visit, odd, look] = steps
        return self._prepared[visit, odd, look]

    def _places(self, visit: Visit) -> dict[str, Any]:
        """Return where the first plane of each page would be, and the table of the layers."""
        window, pointer, starts = self._window, self._memory.pointer, self._window.places
        plane = {page.name: window.plane_bytes(page) for page in window.pages}
        places: dict[str, Any] = {"stop": visit.window[1]}
        for page in window.pages:
            if not page.stays:
                places[page.name] = pointer + starts[page.name] + (page.first - visit.origin) * plane[page.name]
        sides, begins, coefficients = list[list[int]](), list[int](), 0
        word = WORD * window.itemsize
        for number, side in enumerate(self._propagator.layers.sides):
            unit = WORD if side.axis == 2 else 1
            psi, zeta = (starts[f"{kind} {number}"] for kind in ("psi", "zeta"))
            begins.append((psi - (visit.origin * plane[f"psi {number}"] if side.axis else 0)) // word)
            extents = [extent // unit for extent in (side.start, side.count, side.lead, side.trail)]
            sides.append([side.axis, *extents, begins[-1], (zeta - psi) // word, coefficients])
            coefficients += side.coefficients.size
        shift = max([0, *(-begin for begin in begins)])  # kernels know no numbers below 0
        for side_row in sides:
            side_row[5] += shift
        table = np.array(sides, np.uint32).reshape(-1, 8).view(np.int32)
        return places | {"memory": pointer - shift * word, "sides": self._kernels.put_table(table)}
