"""What a step costs with absorbing layers and with none: forward, back, and back with an image of every step."""

from math import prod
from typing import Any

import numpy as np

from forebay.wave import AcousticModel, Adjoint, ElasticModel, Grid, Loop, Shot, largest_dt
from forebay.wave.physics import physics_of
from shots.machine import Host
from shots.waves import middle

COLUMNS = "physics points absorb way ms:.4f wall_ms:.4f Gpoints:.1f"


def row(machine: Host, physics: str, shape: tuple[int, ...], absorb: int, way: str, steps: int) -> dict[str, Any]:
    """Time steps of fields that are nowhere empty, in layers that are inside the shape and count among its points."""
    inner = tuple(points - 2 * absorb for points in shape)
    speed, grid = machine.arrays.full(inner, 2500, "float32"), Grid(inner, 10.0, absorb=absorb)
    model = ElasticModel(speed, speed / 2, speed, grid) if physics == "elastic" else AcousticModel(speed, grid)
    dt, place = 0.9 * largest_dt(model), middle(grid)
    loop = Loop(Shot(place, [place], np.ones(steps), dt), physics_of(model)(model, dt))
    propagator, adjoint = loop.propagator, Adjoint(loop, np.ones((steps, 1), np.float32))
    for field in adjoint.state.values():
        field[...] = 1e-3 * machine.arrays.random.standard_normal(field.shape)
    sums, seen = propagator.image_sums(("pp",)), propagator.image_record(adjoint.state, ("pp",))

    def run() -> None:
        adjoint.step = steps
        if way == "forward":
            adjoint.state = loop.forward(adjoint.state, 0, steps)
        for step in {"back": (0,), "image": range(steps - 1, -1, -1)}.get(way, ()):
            adjoint.back_to(step) if way == "back" else propagator.add_image(adjoint, step, sums, seen, 1.0, None)

    run()
    taken = min(machine.timed(run) for _ in range(3))
    told = {"physics": physics, "points": shape, "absorb": absorb, "way": way, "ms": 1e3 * taken.seconds / steps}
    return told | {"wall_ms": 1e3 * taken.wall / steps, "Gpoints": prod(shape) * steps / taken.seconds / 1e9}
