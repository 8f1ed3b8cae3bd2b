"""Elastic reverse time migration with Devito's own operators, inside a budget: velocity and stress, in 2-D or 3-D.

Devito's functions are vectors and tensors here; Forebay takes them apart. Set to a GPU (DEVITO_PLATFORM=nvidiaX
DEVITO_LANGUAGE=openmp DEVITO_ARCH=clang), the same script keeps every field there, snapshots included.

usage: python examples/devito_elastic_rtm.py
"""

import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np

os.environ.setdefault("DEVITO_LOGGING", "ERROR")

from devito import (
    Eq,
    Function,
    Grid,
    Inc,
    Operator,
    SparseTimeFunction,
    TensorTimeFunction,
    VectorTimeFunction,
    diag,
    div,
    grad,
)

import forebay as fb
from forebay.devito import Forward, Run, resident, sync_device, sync_host

SPACING, DT = 10.0, 1e-3
"""Metres and seconds: stable up to 3500 m/s in 3-D."""


@dataclass(frozen=True)
class Shot:
    """One shot: ground, waves there and back, source and receivers, and the operators on them."""

    shape: tuple[int, ...]
    steps: int
    space_order: int = 8
    every: int = 4
    """grid points between receivers, so that no two of them reach the same point"""

    @cached_property
    def grid(self):
        """Give the grid."""
        return Grid(shape=self.shape, extent=tuple(SPACING * (points - 1) for points in self.shape))

    def ground(self, name, above, below):
        """Give a function that has one value above the middle and one below."""
        found = Function(name=name, grid=self.grid, space_order=2)
        found.data_with_halo[:] = above
        found.data_with_halo[..., self.shape[-1] // 2 + 2 :] = below
        return found

    @cached_property
    def medium(self):
        """Give Lamé's parameters and buoyancy of layered ground, and damping towards the edges."""
        damping = self.ground("damping", 1.0, 1.0)
        edge = max(4, min(self.shape) // 8)
        for axis, points in enumerate(self.shape):
            away = np.clip(edge - np.minimum(np.arange(points), points - 1 - np.arange(points)), 0, None) / edge
            damping.data[:] *= np.exp(-0.1 * away**2).reshape(
                [-1 if axis == one else 1 for one in range(len(self.shape))]
            )
        density = 2000.0
        mu = self.ground("mu", density * 900.0**2, density * 1200.0**2)
        lam = self.ground("lam", density * (1800.0**2 - 2 * 900.0**2), density * (2400.0**2 - 2 * 1200.0**2))
        return {"lam": lam, "mu": mu, "b": self.ground("b", 1 / density, 1 / density), "damping": damping}

    @cached_property
    def waves(self):
        """Give velocity and stress of the wave from the source and of the one back from the receivers."""
        order = {"grid": self.grid, "space_order": self.space_order, "time_order": 1}
        v, tau = VectorTimeFunction(name="v", **order), TensorTimeFunction(name="t", **order)
        return v, tau, VectorTimeFunction(name="w", **order), TensorTimeFunction(name="s", **order)

    @cached_property
    def source(self):
        """Give a source under the surface, with its wavelet."""
        found = SparseTimeFunction(name="source", grid=self.grid, npoint=1, nt=self.steps + 1)
        found.coordinates.data[:] = [SPACING * (points // 2) for points in self.shape[:-1]] + [SPACING * self.depth]
        phase = (np.pi * 12.0 * (np.arange(self.steps + 1) * DT - 0.08)) ** 2
        found.data[:, 0] = (1 - 2 * phase) * np.exp(-phase)
        return found

    @property
    def depth(self):
        """Give the depth of source and receivers in grid points, clear of the absorbing edge."""
        return max(4, min(self.shape) // 8) + 2

    def line(self, name):
        """Give a line of receivers through the source."""
        places = np.arange(self.depth, self.shape[0] - self.depth, self.every)
        found = SparseTimeFunction(name=name, grid=self.grid, npoint=len(places), nt=self.steps + 1)
        found.coordinates.data[:] = self.source.coordinates.data
        found.coordinates.data[:, 0] = SPACING * places
        return found

    @cached_property
    def receivers(self):
        """Give the receivers of the pressure."""
        return self.line("receivers")

    @cached_property
    def residual(self):
        """Give what goes back from the receivers."""
        return self.line("residual")

    @cached_property
    def image(self):
        """Give the image."""
        return Function(name="image", grid=self.grid, space_order=0)

    @property
    def functions(self):
        """List all functions, for `resident`."""
        return (*self.waves, *self.medium.values(), self.source, self.receivers, self.residual, self.image)

    def there(self):
        """Build the operator that runs the wave from the source and records it."""
        v, tau, _, _ = self.waves
        equations = self.moved(v, tau, v.forward, tau.forward)
        for axis in range(len(self.shape)):
            equations.append(self.source.inject(tau.forward[axis, axis], expr=DT * self.source))
        equations.append(self.receivers.interpolate(expr=self.pressure(tau)))
        return Operator(equations, name="There", subs=self.grid.spacing_map)

    def back(self):
        """Build the operator that runs the residual back and adds to the image where it meets the other wave."""
        _, tau, w, s = self.waves
        equations = self.moved(w, s, w.backward, s.backward)
        for axis in range(len(self.shape)):
            equations.append(self.residual.inject(s.backward[axis, axis], expr=DT * self.residual))
        equations.append(Inc(self.image, self.pressure(tau) * self.pressure(s)))
        return Operator(equations, name="Back", subs=self.grid.spacing_map)

    def moved(self, velocity, stress, new_velocity, new_stress):
        """Write a step of the wave equation."""
        lam, mu, b, damping = (self.medium[name] for name in ("lam", "mu", "b", "damping"))
        rates = grad(new_velocity) + grad(new_velocity).transpose(inner=False)
        return [
            Eq(new_velocity, damping * (velocity + DT * b * div(stress))),
            Eq(new_stress, damping * (stress + DT * (lam * diag(div(new_velocity)) + mu * rates))),
        ]

    def pressure(self, stress):
        """Add up what is the same in all directions."""
        return sum(stress[axis, axis] for axis in range(len(self.shape)))


def migrate(shape=(81, 71), steps=400, budget="4MB", schedule="auto"):
    """Give the image of one shot, and what the reversal says of itself."""
    shot = Shot(shape, steps)
    with resident(*shot.functions):
        advance, retreat = Forward(shot.there()), Run(shot.back())

        def turn(final):
            sync_host(shot.receivers)
            shot.residual.data[:] = shot.receivers.data
            sync_device(shot.residual)

        def backward(state, step):
            advance.load(state, step)
            retreat(step, step + 1)

        result = fb.reverse(advance, backward, advance.state(), steps, budget=budget, schedule=schedule, turn=turn)
    return np.array(shot.image.data), result


if __name__ == "__main__":
    image, result = migrate()
    print(result.explain())
    print(f"the image has {np.count_nonzero(image)} points that are not zero, of {image.size}")
