"""The same waves on CPU and GPU: how far apart fields are, and what is heard, after some steps.

Noise is sent into rough media, some of the elastic ones fluid, on grids that fill many blocks, at orders 4 and 8, with
and without a free surface. Differences are relative to the largest value of each field; what is heard is compared by
its kind.

Run ``python bench/twins_gpu.py [--output FILE]``: prints a table, writes ``bench/out/twins_gpu.json``, and fails where
a difference is above what rounding explains.
"""

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from forebay.wave import Acoustic, AcousticModel, ElasticModel, Grid, Loop, Shot, largest_dt
from forebay.wave.elastic_loop import ElasticLoop

CASES = {
    "acoustic": {(300, 311): 60, (70, 133, 150): 60},
    "elastic": {(300, 311): 80, (70, 93, 110): 40},
}
"""Points of the model, and steps."""
ALLOWED = {"acoustic": 3e-6, "elastic": 5e-6}
"""Differences that rounding explains: a few times what was measured."""


def medium(kind: str, shape: tuple[int, ...], free_surface: bool) -> Any:
    """Make a rough medium on a grid that treats no axis like another."""
    spacing, origin = (10.0, 9.0, 11.0)[: len(shape)], (5.0, -3.0, 2.0)[: len(shape)]
    grid, rng = Grid(shape, spacing, origin, absorb=12, free_surface=free_surface), np.random.default_rng(0)
    velocity = 1800.0 + 700.0 * rng.random(shape)
    if kind == "acoustic":
        return AcousticModel(velocity, grid)
    share, density = 0.45 + 0.1 * rng.random(shape), 1500 + 900 * rng.random(shape)
    share.reshape(-1)[::7] = 0.0
    return ElasticModel(velocity, share * velocity, density, grid)


def shot_of(kind: str, grid: Grid, steps: int, dt: float) -> Shot:
    """Place sources and receivers of every kind anywhere in the model, below its surface."""
    axes = "zx" if grid.ndim == 2 else "zyx"
    sends, hears = ["explosion"] * 3, ["pressure"] * 200
    if kind == "elastic":
        sends = ["explosion", *(f"force {axis}" for axis in axes)]
        hears = 50 * ["pressure", *(f"velocity {axis}" for axis in axes)]
    low, high = np.add(grid.origin, grid.spacing), np.asarray(grid.end)
    places = (
        low + np.random.default_rng(seed).random((count, grid.ndim)) * (high - low)
        for seed, count in ((1, len(sends)), (2, len(hears)))
    )
    sizes = np.where([kind == "elastic" and one == "explosion" for one in sends], 1e-6, 1.0)
    wavelet = np.random.default_rng(4).standard_normal((steps, len(sends))) * sizes
    return Shot(*places, wavelet, dt, sends=sends, hears=hears)


def moved(model: Any, put: Any) -> Any:
    """Bring a model to where another array library has its arrays."""
    if isinstance(model, AcousticModel):
        return AcousticModel(put(model.velocity), model.grid)
    return ElasticModel(put(model.vp), put(model.vs), put(model.rho), model.grid)


def waves(model: Any, shot: Shot, order: int) -> dict[str, Any]:
    """Give all fields after the last step, and what was heard of each kind."""
    if isinstance(model, AcousticModel):
        loop, rows = Loop(shot, Acoustic(model, shot.dt, order)), "rows"
    else:
        loop, rows = ElasticLoop(shot, model, shot.dt, order), "layout"
    state = loop.forward(loop.propagator.zeros(), 0, loop.steps)
    cut, get = getattr(loop.propagator, rows).cut, loop.kernels.get
    heard, pressure = get(loop.heard), np.array([kind == "pressure" for kind in shot.hears])
    kinds = {"pressure": heard[:, pressure], "velocity": heard[:, ~pressure]}
    return {
        "fields": {name: cut(get(field)) for name, field in state.items()},
        "heard": {name: values for name, values in kinds.items() if values.size},
    }


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Give the largest difference, relative to the largest value of the field that it is in."""
    return max(float(np.abs(one[name] - other[name]).max() / np.abs(one[name]).max()) for name in one)


def measure(kind: str, shape: tuple[int, ...], steps: int, order: int, free_surface: bool, put: Any) -> dict[str, Any]:
    model = medium(kind, shape, free_surface)
    shot = shot_of(kind, model.grid, steps, 0.9 * largest_dt(model, order))
    here, there = (waves(one, shot, order) for one in (model, moved(model, put)))
    row = {"kind": kind, "shape": list(shape), "steps": steps, "order": order, "free_surface": free_surface}
    return row | {what: apart(here[what], there[what]) for what in here}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "out" / "twins_gpu.json")
    asked = parser.parse_args()
    import cupy

    table, found = Table("waves", "grid", "steps", "order", "surface", "fields", "heard"), []
    for kind, order, free_surface in product(CASES, (4, 8), (False, True)):
        for shape, steps in CASES[kind].items():
            row = measure(kind, shape, steps, order, free_surface, cupy.asarray)
            print(json.dumps(row), flush=True)
            found.append(row)
            asked.output.parent.mkdir(exist_ok=True)
            asked.output.write_text(json.dumps(found, indent=2) + "\n")
            cells = " x ".join(map(str, shape)), str(steps), str(order), "free" if free_surface else "open"
            table.add_row(kind, *cells, f"{row['fields']:.1e}", f"{row['heard']:.1e}")
    Console(width=110).print(table)
    wrong = [row for row in found if not max(row["fields"], row["heard"]) < ALLOWED[row["kind"]]]
    assert not wrong, wrong


if __name__ == "__main__":
    main()
