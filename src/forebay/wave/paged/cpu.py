"""The steps of a visit for a window in host memory: the loops of `acoustic.cpu` on the planes that are there."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.machine.region import Region
from forebay.wave.acoustic.cpu import MANY, advance
from forebay.wave.acoustic.cpu_layers import SIZE, LayerTable, change, table_of
from forebay.wave.acoustic.layers import AcousticLayers, Side
from forebay.wave.paged.course import Span, Visit
from forebay.wave.paged.pages import Window
from forebay.wave.paged.points import PassPoints


class CpuSteps:
    """What passes compute; the bits are those of the whole model's loops."""

    def __init__(
        self,
        propagator: Any,
        window: Window,
        memory: Region,
        points: PassPoints,
        sent: NDArray[Any],
        heard: NDArray[Any] | None,
        back: bool,
    ) -> None:
        self._propagator, self._kernels, self._back = propagator, propagator.kernels, back
        self._points, self._sent, self._heard = points, sent, heard
        self._flat: NDArray[Any] = memory.bytes.view(self._kernels.dtype)
        self._window, self._pages = window, {page.name: page for page in window.pages}
        self._starts = {name: place // window.itemsize for name, place in window.places.items()}
        self._changes = np.empty(0, self._kernels.dtype)

    def compute(self, numbers: Sequence[int], visit: Visit) -> None:
        """Take a visit's planes through steps of some numbers: each sends a row of values, and hears into another."""
        kernels, points, names = self._kernels, self._points, ("p", "p_old")
        for number, span in zip(numbers, visit.steps, strict=True):
            p, old = (self._planes(name, (0, self._window.room), 0) for name in names)
            if self._heard is not None:
                listeners, places = points.listening(span)
                heard = np.empty(len(places), kernels.dtype)
                kernels.gather(p, points.shifted(listeners, visit.origin), heard)
                self._heard[number, places] = heard
            self._step(visit, names, span)
            senders, factors = points.sending(span)
            if len(factors):
                kernels.scatter(old, points.shifted(senders, visit.origin), self._sent[number], factors)
            if self._propagator.model.grid.free_surface and span[0] == kernels.radius:
                kernels.mirror(self._planes(names[1], (0, 3 * kernels.radius), visit.origin))
            names = names[::-1]

    def _planes(self, name: str, span: Span, origin: int) -> NDArray[Any]:
        """Return some planes of a page, or where they would be."""
        shape, begin = self._pages[name].shape[1:], self._starts[name]
        size = prod(shape)
        flat = self._flat[begin + (span[0] - origin) * size : begin + (span[1] - origin) * size]
        return flat.reshape(span[1] - span[0], *shape)

    def _step(self, visit: Visit, names: Sequence[str], span: Span) -> None:
        radius, weights = self._kernels.radius, self._propagator.weights
        around = span[0] - radius, span[1] + radius
        p, old, squared = (self._planes(name, around, visit.origin) for name in (*names, "squared"))
        table = self._table(visit, around)
        if table is not None:
            change(table, p, old, squared, self._flat, self._changes, radius, self._back)
        # Whether several threads compute is part of what is compiled, and so of the bits.
        advance(3, radius, self._kernels.dtype, prod(self._pages["p"].shape) >= MANY)(p, old, squared, weights)

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
