"""The steps of a visit for a window on a GPU: the kernels of ``volume.cu`` on the planes that are there.

Kernels are told planes by their numbers in the model, and addresses at which its first plane would be. Each pass
launches the same kernels with the same arguments as the one before, but for what is sent and heard.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from forebay.machine.region import Region
from forebay.wave.acoustic.volume import VolumeKernels
from forebay.wave.imaging import Sensing
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.rows import WORD
from forebay.wave.paged.course import Span, Visit
from forebay.wave.paged.pages import Window
from forebay.wave.paged.points import PassPoints


class WindowKernels(VolumeKernels):
    """The kernels of a volume, for some of its planes."""

    def _check_size(self, shape: tuple[int, ...]) -> None:
        """Take fields of any size: cells are counted from where a window begins."""

    def launches(
        self, propagator: Any, planes: Span, back: bool, senses: bool, places: dict[str, Any]
    ) -> list[Launch]:
        """Return what computes some planes in a step, which lie at some places."""
        weights, layers = propagator.weights, propagator.layers
        name = "retreat_and_sense" if senses else "retreat" if back else "advance"
        more = {"record": None, "total": None, "factor": 0.0} if senses else {}
        stencil = self._step_of(name, None, weights, layers, more, planes)
        stencil.set(planes=places["stop"])
        changes = self._changes_of(None, weights, layers, back, planes)
        of_fields = ("p", "old", "squared", "memory", "sides", *(("record", "total") if senses else ()))
        for launch in (*changes, stencil):
            launch.set(**{name: places[name] for name in of_fields})
        return [*changes, stencil]

    def points(self, points: PassPoints, planes: Span, mirrored: bool) -> tuple[Launch | None, int]:
        """Return what sends and hears in some planes, if anything does, and how many listeners are before."""
        (senders, factors), (listeners, first) = points.sending(planes), points.listening(planes)
        if not len(senders.touched) and listeners is None:
            return None, 0
        launch = self._points_of(senders if len(senders.touched) else None, factors, listeners)
        launch.set(mirrored=self._mirrored if mirrored else 0)
        return launch, first


class Prepared(NamedTuple):
    """A step of a visit."""

    launches: list[Launch]
    points: Launch | None
    field: int
    """where the field that is sent to begins in the window"""
    heard: int
    """where the one that is heard does"""
    first: int
    """listeners before those that hear"""


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
        self._prepared: dict[tuple[Visit, bool], list[Prepared]] = {}
        self._sent = self._rows = self._heard = self._sensing = None

    def begin(self, numbers: Sequence[int], sent: Any, heard: Any, sensing: Sensing | None) -> None:
        """Take what is sent in steps of some numbers, and where to put what is heard; the last one may be sensed."""
        kernels = self._kernels
        self._numbers, self._sensing, self._heard = numbers, sensing, heard
        self._sent = kernels.put(np.ascontiguousarray(sent[min(numbers) : max(numbers) + 1]))
        self._rows = None if heard is None else kernels.zeros((len(numbers), heard.shape[1]))

    def compute(self, numbers: Sequence[int], visit: Visit) -> None:
        """Take a visit's planes through steps of some numbers: each sends a row of values, and hears into another."""
        device, first = self._kernels.device, min(self._numbers)
        stream, senses = device.stream(), self._sensing is not None and numbers[-1] == self._numbers[-1]
        sent, row = device.address(self._sent), self._sent.itemsize * self._sent.shape[1]
        for number, prepared in zip(numbers, self._prepare(visit, senses), strict=True):
            for launch in prepared.launches:
                if senses and number == numbers[-1]:
                    launch.set(factor=self._sensing.factor)
                launch(stream)
            if prepared.points is not None:
                out = 0 if self._rows is None else device.address(self._rows[number - first]) + 4 * prepared.first
                values = sent + (number - first) * row
                prepared.points.set(field=prepared.field, values=values, heard=prepared.heard, out=out)
                prepared.points(stream)

    def finish(self) -> None:
        """Bring home what was heard, once all is computed."""
        if self._rows is not None:
            self._heard[min(self._numbers) : max(self._numbers) + 1, self._points.order] = self._kernels.get(self._rows)
        self._sent = self._rows = self._heard = self._sensing = None

    def _prepare(self, visit: Visit, senses: bool) -> list[Prepared]:
        if (visit, senses) not in self._prepared:
            self._prepared[visit, senses] = self._steps(visit, senses)
        return self._prepared[visit, senses]

    def _steps(self, visit: Visit, senses: bool) -> list[Prepared]:
        kernels, names, steps, places = self._kernels, ("p", "p_old"), list[Prepared](), self._places(visit)
        points = self._points.within(visit.computes, visit.origin * self._cells, kernels.put)
        for number, planes in enumerate(visit.steps):
            p, old = names
            now = senses and number == len(visit.steps) - 1
            fields = places | {"p": places[p], "old": places[old]}
            launches = kernels.launches(self._propagator, planes, self._back, now, fields)
            # A free surface is above the planes of the first visit alone, whose cells are counted from the beginning.
            launch, first = kernels.points(points, planes, visit.origin == 0)
            begin = self._window.places
            heard, field = (self._memory.pointer + begin[name] for name in names)
            steps.append(Prepared(launches, launch, field, heard, first))
            names = names[::-1]
        return steps

    def _places(self, visit: Visit) -> dict[str, Any]:
        """Return where the first plane of each page would be, and the table of the layers."""
        window, pointer, starts = self._window, self._memory.pointer, self._window.places
        plane = {page.name: window.plane_bytes(page) for page in window.pages}
        places: dict[str, Any] = {"stop": visit.window[1]}
        for name in ("p", "p_old", "squared", "record", "total"):
            if name in starts:
                places[name] = pointer + starts[name] - visit.origin * plane[name]
        sides, begins, coefficients = list[list[int]](), list[int](), 0
        word = WORD * window.itemsize
        for number, side in enumerate(self._propagator.layers.sides):
            unit = WORD if side.axis == 2 else 1
            psi, zeta = (starts[f"{kind} {number}"] for kind in ("psi", "zeta"))
            begins.append((psi - (visit.origin * plane[f"psi {number}"] if side.axis else 0)) // word)
            extents = [places_of // unit for places_of in (side.start, side.count, side.lead, side.trail)]
            sides.append([side.axis, *extents, begins[-1], (zeta - psi) // word, coefficients])
            coefficients += side.coefficients.size
        shift = max([0, *(-begin for begin in begins)])
        for side_row in sides:
            side_row[5] += shift
        table = np.array(sides, np.uint32).reshape(-1, 8).view(np.int32)
        places["sides"] = self._kernels.device.arrays.asarray(table, np.int32)
        return places | {"memory": pointer - shift * word}
