"""What a step costs with absorbing layers and with none: forward, back, and back with an image of every step.

In three dimensions a plain acoustic kernel tells besides what layers cost that only damp, at as many points.
"""

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from cases.machine import Host

from forebay import wave
from forebay.wave.physics import physics_of
from shots.waves import middle

SOURCE = Path(__file__).parents[1] / "acoustic.cu"
COLUMNS = "physics points absorb way ms:.4f wall_ms:.4f Gpoints:.1f over_none:.3f over_damping:.3f"


def row(machine: Host, physics: str, shape: tuple[int, ...], absorb: int, way: str, steps: int) -> dict[str, Any]:
    """Time steps of fields that are nowhere empty, in layers that are inside the shape and count among its points."""
    inner = tuple(points - 2 * absorb for points in shape)
    speed, grid = machine.arrays.full(inner, 2500, "float32"), wave.Grid(inner, 10.0, absorb=absorb)
    model: Any = {
        "acoustic": lambda: wave.AcousticModel(speed, grid),
        "density": lambda: wave.DensityModel(speed, speed, grid),
        "vti": lambda: wave.VTIModel(speed, speed / 25_000, speed / 50_000, grid),
        "visco": lambda: wave.ViscoModel(speed, speed / 100_000, grid, 10.0),
        "elastic": lambda: wave.ElasticModel(speed, speed / 2, speed, grid),
    }[physics]()
    dt, place = 0.9 * wave.largest_dt(model), middle(grid)
    loop = wave.Loop(wave.Shot(place, [place], np.ones(steps), dt), physics_of(model)(model, dt))
    propagator, adjoint = loop.propagator, wave.Adjoint(loop, np.ones((steps, 1), np.float32))
    for field in adjoint.state.values():
        field[...] = 1e-3 * machine.arrays.random.standard_normal(field.shape)
    sums, seen = propagator.image_sums(("pp",)), propagator.image_record(adjoint.state, ("pp",))

    def run() -> None:
        adjoint.step = steps
        if way == "forward":
            adjoint.state = loop.forward(adjoint.state, 0, steps)
        for step in {"back": (0,), "image": range(steps - 1, -1, -1)}.get(way, ()):
            adjoint.back_to(step) if way == "back" else propagator.add_image(adjoint, step, sums, seen, 1.0, None)

    return {"physics": physics, "absorb": absorb, "way": way} | _timed(machine, run, shape, steps)


def damped(machine: Host, shape: tuple[int, int, int], absorb: int, steps: int) -> dict[str, Any]:
    """Time steps forward that damp in the layers, by the kernel of `acoustic.cu` in its fastest shape."""
    halo, (block, deep) = 4, ((32, 8), 4)
    nz, ny, nx = (points + 2 * halo for points in shape)
    fields = [1e-3 * machine.arrays.random.standard_normal((nz, ny, nx), dtype=np.float32) for _ in range(2)]
    speed = machine.arrays.full((nz, ny, nx), 0.08, np.float32)
    ramp = np.linspace(0.9, 1, absorb + halo)
    fades = [np.concatenate([ramp, np.ones(extent - 2 * len(ramp)), ramp[::-1]]) for extent in (nz, ny, nx)]
    factors = machine.arrays.asarray(np.concatenate(fades), np.float32)
    kernel = machine.arrays.RawModule(code=SOURCE.read_text(encoding="utf-8"), options=("-DBLOCK_X=32", "-DBLOCK_Y=8"))
    advance, extents = kernel.get_function("advance_damped"), (nz, ny, nx // 4, -(-shape[0] // deep))
    grid = (-(-shape[2] // 4 // block[0]), -(-shape[1] // block[1]), deep)

    def run() -> None:
        for step in range(steps):
            p, old = fields[step % 2], fields[1 - step % 2]
            advance(grid, block, (p, old, speed, *map(np.int32, extents), factors))

    return {"physics": "acoustic", "absorb": "damping", "way": "forward"} | _timed(machine, run, shape, steps)


def _timed(machine: Host, run: Callable[[], None], shape: tuple[int, ...], steps: int) -> dict[str, Any]:
    run()
    taken = min(machine.timed(run) for _ in range(3))
    ms, wall_ms = 1e3 * taken.seconds / steps, 1e3 * taken.wall / steps
    return {"points": shape, "ms": ms, "wall_ms": wall_ms, "Gpoints": prod(shape) / ms / 1e6}


def compare(rows: Sequence[dict[str, Any]]) -> None:
    """Set each step with layers beside the same with none, and acoustic ones beside the damped step at equal points."""
    known = {(row["physics"], row["points"], row["way"], row["absorb"]): row["ms"] for row in rows}
    for row in rows:
        if row["absorb"] == 20:
            none = known.get((row["physics"], row["points"], row["way"], 0))
            damping = known.get((row["physics"], row["points"], "forward", "damping"))
            row["over_none"] = row["ms"] / none if none else None
            row["over_damping"] = row["ms"] / damping if damping and row["way"] != "image" else None
