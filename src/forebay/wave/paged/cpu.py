"""The steps of a visit for a window in host memory: the loops of `acoustic.cpu` on the planes that are there."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.machine.region import Region
from forebay.wave.acoustic.cpu import MANY, advance, correlate, curvature
from forebay.wave.acoustic.cpu_layers import SIZE, LayerTable, add, change, table_of
from forebay.wave.acoustic.layers import AcousticLayers, Side
from forebay.wave.imaging import Imaging, Sensing
from forebay.wave.paged.course import Span, Visit
from forebay.wave.paged.pages import Look, Window
from forebay.wave.paged.points import PassPoints


class CpuSteps:
    """What passes compute; the bits are those of the whole model's loops."""

    def __init__(self, propagator: Any, window: Window, memory: Region, points: PassPoints, back: bool) -> None:
        self._propagator, self._kernels, self._points, self._back = propagator, propagator.kernels, points, back
        self._flat: NDArray[Any] = memory.bytes[: window.nbytes].view(self._kernels.dtype)
        self._window, self._pages = window, {page.name: page for page in window.pages}
        self._starts = {name: place // window.itemsize for name, place in window.places.items()}
        self._changes = np.empty(0, self._kernels.dtype)
        self._about: tuple[Any, ...] = ()

    def begin(self, numbers: Sequence[int], sent: Any, heard: Any, look: Look | None) -> None:
        """Take what steps of some numbers send, where to put what they hear, and what is made of the last one."""
        self._about = numbers[-1], sent, heard, look

    def compute(self, numbers: Sequence[int], odd: bool, visit: Visit) -> None:
        """Take a visit's planes through steps of some numbers: each sends a row of values, and hears into another."""
        kernels, names = self._kernels, ("p_old", "p") if odd else ("p", "p_old")
        last, sent, rows, look = self._about
        cells = prod(self._pages["p"].shape[1:])
        points = self._points.within(visit.computes, visit.origin * cells)
        for number, planes in zip(numbers, visit.steps, strict=True):
            p, old = (self._planes(name, (0, self._window.room), 0) for name in names)
            listeners, first = points.listening(planes)
            if rows is not None and listeners is not None:
                heard = np.empty(listeners.count, kernels.dtype)
                kernels.gather(p, listeners, heard)
                rows[number, self._points.order[first : first + len(heard)]] = heard
            now = look if number == last else None
            self._step(visit, names, planes, now if isinstance(now, Sensing) else None)
            senders, factors = points.sending(planes)
            if len(factors):
                kernels.scatter(old, senders, sent[number], factors)
            if self._propagator.model.grid.free_surface and planes[0] == kernels.radius:
                kernels.mirror(self._planes(names[1], (0, 3 * kernels.radius), visit.origin))
            if isinstance(now, Imaging):
                self._picture(visit, planes, names[1], now)
            names = names[::-1]

    def _picture(self, visit: Visit, planes: Span, name: str, image: Imaging) -> None:
        """Add to an image what both waves are in some planes, by the loop that all of it would have."""
        begin, end = self._pages["seen"].planes
        part = max(planes[0], begin), min(planes[1], end)
        if part[0] < part[1]:
            bright, light, seen = (self._planes(page, part, visit.origin) for page in ("image", "light", "seen"))
            here = self._planes(name, part, visit.origin)[(slice(None), *self._kernels.window[1:])]
            parallel = prod(self._pages["image"].shape) >= MANY
            correlate[parallel](bright, light, seen, here, self._kernels.dtype.type(image.factor))

    def finish(self) -> None:
        """Let go of what was sent and heard."""
        self._about = ()

    def _planes(self, name: str, span: Span, origin: int) -> NDArray[Any]:
        """Return some planes of a page, or where they would be."""
        shape, begin = self._pages[name].shape[1:], self._starts[name]
        size = prod(shape)
        flat = self._flat[begin + (span[0] - origin) * size : begin + (span[1] - origin) * size]
        return flat.reshape(span[1] - span[0], *shape)

    def _step(self, visit: Visit, names: Sequence[str], span: Span, sensing: Sensing | None) -> None:
        kernels, weights = self._kernels, self._propagator.weights
        radius, dtype = kernels.radius, kernels.dtype
        around = span[0] - radius, span[1] + radius
        p, old, squared = (self._planes(name, around, visit.origin) for name in (*names, "squared"))
        table = self._table(visit, around)
        # Whether several threads compute is part of what is compiled, and so of the bits.
        parallel = prod(self._pages["p"].shape) >= MANY
        if table is not None:
            change(table, p, old, squared, self._flat, self._changes, radius, self._back)
        advance(3, radius, dtype, parallel)(p, old, squared, weights)
        if sensing is not None:
            total, record = (self._planes(name, around, visit.origin) for name in ("total", "record"))
            factor = dtype.type(sensing.factor)
            curvature(3, radius, dtype, parallel)(total, record, p, weights, factor)
            if table is not None:
                add(table, total, record, self._changes, factor)

    def _table(self, visit: Visit, around: Span) -> LayerTable | None:
        """Tell the loops of the layers in some planes."""
        sides, sizes, changed = list[Side](), list[int](), 0
        for number, side in enumerate(self._propagator.layers.sides):
            psi, zeta = (self._starts[f"{kind} {number}"] for kind in ("psi", "zeta"))
            if side.axis:
                shape = (around[1] - around[0], *side.shape[1:])
                offset = psi + (around[0] - visit.origin) * prod(side.shape[1:])
                part = replace(side, shape=shape, offset=offset, changed=changed)
            elif side.start >= around[0] and side.start + side.count <= around[1]:
                part = replace(side, start=side.start - around[0], offset=psi, changed=changed)
            else:
                continue
            sides.append(part)
            sizes.append(zeta - psi)
            changed += prod(part.reach)
        if not sides:
            return None
        if len(self._changes) < changed:
            self._changes = np.empty(changed, self._kernels.dtype)
        shape = (around[1] - around[0], *self._pages["p"].shape[1:])
        table = table_of(AcousticLayers(tuple(sides)), shape, self._propagator.weights, self._kernels.radius)
        table.sides[:, SIZE] = sizes
        all_sides = self._propagator.layers.sides
        return replace(table, parallel=max(side.size for side in all_sides) >= MANY)
