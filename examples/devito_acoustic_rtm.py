"""Acoustic reverse time migration with Devito's own operators, inside a budget.

The 2-D wavefield of 500 steps is needed again, latest first; Forebay keeps what the budget allows and has Devito
compute the rest again. Set to a GPU (DEVITO_PLATFORM=nvidiaX DEVITO_LANGUAGE=openmp DEVITO_ARCH=clang), the same script
keeps every field there, snapshots included.

usage: python examples/devito_acoustic_rtm.py
"""

import os

import numpy as np

os.environ.setdefault("DEVITO_LOGGING", "ERROR")

from devito import Eq, Function, Grid, Inc, Operator, SparseTimeFunction, TimeFunction, solve

import forebay as fb
from forebay.devito import Forward, Run, resident, sync_device, sync_host

EDGE = 20
"""Points of the absorbing edges."""


def layers(shape, spacing=10.0):
    """Give slowness squared of layered ground and of a smooth guess of it, and damping towards the edges."""
    grid = Grid(shape=shape, extent=tuple(spacing * (points - 1) for points in shape))
    depth = np.broadcast_to(np.arange(shape[-1]), shape)
    velocity = np.where(depth < 0.55 * shape[-1], 1500.0, 2100.0)
    squared, guess, damping = (Function(name=name, grid=grid, space_order=2) for name in ("squared", "m", "damping"))
    squared.data[:] = velocity**-2.0
    guess.data[:] = 1500.0**-2.0
    away = [np.clip(EDGE - np.minimum(np.arange(n), n - 1 - np.arange(n)), 0, None) / EDGE for n in shape]
    damping.data[:] = 0.25e-4 * np.max(np.meshgrid(*away, indexing="ij"), axis=0) ** 2
    return grid, squared, guess, damping


def points(name, grid, steps, places):
    """Give points with a value a step, at places in metres."""
    found = SparseTimeFunction(name=name, grid=grid, npoint=len(places), nt=steps + 1)
    found.coordinates.data[:] = places
    return found


def migrate(shape=(101, 81), steps=500, budget="2MB", schedule="auto"):
    """Give the image of one shot, and what the reversal says of itself."""
    grid, squared, guess, damping = layers(shape)
    dt, width = 0.002, grid.extent[0]
    u, v = (TimeFunction(name=name, grid=grid, time_order=2, space_order=8) for name in "uv")
    image = Function(name="image", grid=grid)
    source = points("source", grid, steps, [(width / 2, 250.0)])
    phase = (np.pi * 12.0 * (np.arange(steps + 1) * dt - 0.1)) ** 2
    source.data[:, 0] = (1 - 2 * phase) * np.exp(-phase)
    line = np.linspace(0.25 * width, 0.75 * width, 25)
    receivers, residual = (
        points(name, grid, steps, np.column_stack([line, np.full(25, 250.0)])) for name in ("receivers", "residual")
    )
    step = solve(guess * u.dt2 - u.laplace + damping * u.dt, u.forward)
    back = solve(guess * v.dt2 - v.laplace - damping * v.dt, v.backward)

    with resident(u, v, squared, guess, damping, image, source, receivers, residual):
        scale = dt**2 / guess
        forward = Operator(
            [Eq(u.forward, step), source.inject(u.forward, expr=source * scale), receivers.interpolate(u)],
            name="Forward",
            subs=grid.spacing_map,
        )
        adjoint = Operator(
            [Eq(v.backward, back), residual.inject(v.backward, expr=residual * scale), Inc(image, u * v)],
            name="Adjoint",
            subs=grid.spacing_map,
        )
        forward.apply(time_m=0, time_M=steps - 1, dt=dt, m=squared)
        sync_host(receivers)
        recorded = np.array(receivers.data)
        u.data[:] = 0.0
        sync_device(u)

        advance, retreat = Forward(forward, dt=dt), Run(adjoint, dt=dt)

        def turn(final):
            sync_host(receivers)
            residual.data[:] = recorded - receivers.data
            sync_device(residual)

        def backward(state, step):
            advance.load(state, step)
            retreat(step, step + 1)

        result = fb.reverse(advance, backward, advance.state(), steps, budget=budget, schedule=schedule, turn=turn)
    return np.array(image.data), result


if __name__ == "__main__":
    image, result = migrate()
    print(result.explain())
    loudest = EDGE + 10 + np.argmax(np.abs(np.gradient(image[50]))[EDGE + 10 : -EDGE])
    print(f"the layers meet at 440 m; the image is strongest at {10 * loudest} m")
