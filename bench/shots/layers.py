"""What a step costs with absorbing layers and with none: forward, back, and back with an image of every step."""

from math import prod
from typing import Any

import numpy as np

from forebay.wave import AcousticModel, Adjoint, ElasticModel, Grid, Loop, Shot, largest_dt
from forebay.wave.physics import physics_of
from shots.machine import Host, Taken
from shots.waves import middle

WAYS = ("forward", "back", "image")
COLUMNS = "physics points absorb " + " ".join(f"{way}:.4f {way}_wall:.4f {way}_Gpoints:.1f" for way in WAYS)
"""Milliseconds of a step by events and by the clock, and its points a second, those of layers among them."""


def row(machine: Host, physics: str, shape: tuple[int, ...], absorb: int, steps: int) -> dict[str, Any]:
    """Time steps of fields that are nowhere empty, in layers that are inside the shape."""
    inner = tuple(points - 2 * absorb for points in shape)
    speed, grid = machine.arrays.full(inner, 2500, "float32"), Grid(inner, 10.0, absorb=absorb)
    model = ElasticModel(speed, speed / 2, speed, grid) if physics == "elastic" else AcousticModel(speed, grid)
    dt, place = 0.9 * largest_dt(model), middle(grid)
    loop = Loop(Shot(place, [place], np.ones(steps), dt), physics_of(model)(model, dt))
    propagator, adjoint = loop.propagator, Adjoint(loop, np.ones((steps, 1), np.float32))
    sums, state = propagator.image_sums(("pp",)), propagator.zeros()
    for field in (*state.values(), *adjoint.state.values()):
        field[...] = 1e-3 * machine.arrays.random.standard_normal(field.shape)
    seen = propagator.image_record(state, ("pp",))

    def image() -> None:
        adjoint.step = steps
        for step in reversed(range(steps)):
            propagator.add_image(adjoint, step, sums, seen, 1.0, None)

    def back() -> None:
        adjoint.step = steps
        adjoint.back_to(0)

    calls = (lambda: loop.forward(state, 0, steps), back, image)
    told: dict[str, Any] = {"physics": physics, "points": shape, "absorb": absorb}
    for way, call in zip(WAYS, calls, strict=True):
        call()
        taken = Taken(*map(min, zip(*(machine.timed(call) for _ in range(3)), strict=True)))
        told |= {way: 1e3 * taken.seconds / steps, f"{way}_wall": 1e3 * taken.wall / steps}
        told[f"{way}_Gpoints"] = prod(shape) * steps / taken.seconds / 1e9
    machine.release()
    return told
