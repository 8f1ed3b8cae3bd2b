"""Steps of our propagators, acoustic or elastic, to be set beside Devito's."""

from typing import Any

import numpy as np

from forebay.wave import Acoustic, AcousticModel, Elastic, ElasticModel, Grid, largest_dt

MEDIA = {"acoustic": (2000.0,), "elastic": (3000.0, 1700.0, 2200.0)}
NBYTES = {"acoustic": {2: 16, 3: 16}, "elastic": {2: 80, 3: 140}}
"""Bytes of a point and step, by the number of axes: each field read or written once, elastic ones in each half."""


def pulse(shape: tuple[int, ...]) -> Any:
    places = np.meshgrid(*(np.arange(points, dtype=np.float32) for points in shape), indexing="ij", sparse=True)
    return np.exp(-sum(((place - points / 2) / 6) ** 2 for place, points in zip(places, shape, strict=True)))


class Ours:
    """A propagator of `forebay.wave` whose one source sends nothing."""

    def __init__(self, waves: str, shape: tuple[int, ...], order: int) -> None:
        layer = min(40, min(shape) // 4)
        inner = tuple(points - 2 * layer for points in shape)
        medium, grid = (np.full(inner, value, np.float32) for value in MEDIA[waves]), Grid(inner, 10.0, absorb=layer)
        self.acoustic = waves == "acoustic"
        model: Any = (AcousticModel if self.acoustic else ElasticModel)(*medium, grid)
        physics: Any = Acoustic if self.acoustic else Elastic
        propagator = self.propagator = physics(model, 0.9 * largest_dt(model, order), order)
        self.rows = propagator.rows if self.acoustic else propagator.layout
        self.inner = (slice(order // 2, -order // 2),) * len(shape)
        self.state = propagator.zeros()
        for name in ("p", "p_old") if self.acoustic else propagator.stresses[: len(shape)]:
            self.rows.cut(self.state[name])[self.inner] = pulse(shape)
        self.source = propagator.antenna(np.asarray([grid.end]) / 2, ["explosion"])
        self.sent = propagator.kernels.zeros((100, 1))

    def run(self, steps: int) -> None:
        """Step on."""
        self.state = self.propagator.advance(self.state, self.source, self.sent, range(steps))

    def fields(self) -> dict[str, Any]:
        """Return the newest fields."""
        names = ("p",) if self.acoustic else tuple(self.state)
        return {name: self.rows.cut(self.state[name])[self.inner] for name in names}
