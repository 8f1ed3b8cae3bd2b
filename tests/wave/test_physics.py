"""A third physics takes no more than this file: waves on a membrane that rubs, in plain NumPy.

The rate r of the deflection p is damped and driven, r' = d r + m (lap(p) + f) and p' = p + dt r', with m = v^2 dt. The
transpose of that step is another one: with n = a_r + dt a_p, a_p' = a_p + lap(m n) and a_r' = d n.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from forebay.errors import WaveError
from forebay.wave import Adjoint, Grid, Loop, Shot, gradient, largest_dt, migrate, modelling, physics, ricker, simulate
from forebay.wave.earth.stability import resolving
from forebay.wave.physics import Physics, register

DAMPING = 0.995


@dataclass(frozen=True, eq=False)
class Membrane:
    velocity: np.ndarray
    grid: Grid
    slowest = property(lambda self: float(self.velocity.min()))
    fastest = property(lambda self: float(self.velocity.max()))


class Arrays:
    dtype = np.dtype(np.float64)
    zeros, put, get = staticmethod(np.zeros), staticmethod(np.asarray), staticmethod(np.asarray)


class Rubbing(Physics):
    sensitive_fields = ("p",)
    largest_dt = staticmethod(lambda model, order: 0.7 * min(model.grid.spacing) / model.fastest)
    points_per_wavelength = staticmethod(lambda order: resolving(lambda angles: 2 * np.sin(angles / 2)))
    pressure = staticmethod(lambda state: state["p"])
    image_record = staticmethod(lambda state, names: {"p": state["p"]})
    image_arrays = staticmethod(lambda sums: sums)

    def __init__(self, model, dt, order, dtype):
        self.model, self.dt, self.kernels = model, dt, Arrays()
        self.mobility = model.velocity**2 * dt

    def zeros(self):
        return {"p": np.zeros(self.model.grid.shape), "r": np.zeros(self.model.grid.shape)}

    def antenna(self, positions, kinds):
        return tuple(np.rint((positions - self.model.grid.origin) / self.model.grid.spacing).astype(int).T)

    def laplacian(self, field):
        padded = np.pad(field, 1)
        beside = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        return (beside - 4 * field) / self.model.grid.cell

    def driven(self, p, senders, values):
        force = self.laplacian(p)
        np.add.at(force, senders, values)
        return force

    def advance(self, state, senders, sent, steps, hears=None):
        p, r = state["p"], state["r"]
        for step in steps:
            if hears is not None:
                hears[1][step] = p[hears[0]]
            r = DAMPING * r + self.mobility * self.driven(p, senders, sent[step])
            p = p + self.dt * r
        return {"p": p, "r": r}

    def carried(self, adjoint):
        return adjoint["r"] + self.dt * adjoint["p"]

    def retreat(self, state, senders, sent, steps, image=None):
        for step in steps:
            carried = self.carried(state)
            p = state["p"] + self.laplacian(self.mobility * carried)
            np.add.at(p, senders, sent[step])
            state = {"p": p, "r": DAMPING * carried}
        return state

    def arrive(self, adjoint, step, out):
        out[:] = (self.mobility * self.carried(adjoint.back_to(step + 1)))[adjoint.loop.sources]

    def image_sums(self, names):
        return {name: tuple(self.zeros().values()) for name in names}

    def sent_back(self, data, shot):
        return data * (shot.dt / self.dt)

    def add_image(self, adjoint, step, sums, record, factor, condition):
        ((image, illumination),), other = sums.values(), adjoint.back_to(step)
        image += factor * record["p"] * other["p"]
        illumination += factor * record["p"] ** 2
        if condition is not None:
            condition(record["p"], other["p"], step)

    def sensitivity_sums(self):
        return {"mobility": self.zeros()["p"]}

    def add_sensitivity(self, sums, adjoint, record, step, every):
        if step < adjoint.loop.steps:
            force = self.driven(record["p"], adjoint.loop.sources, adjoint.loop.sent[step])
            sums["mobility"] += every * self.carried(adjoint.back_to(step + 1)) * force

    def gradient(self, sums, parameter):
        return 2 * self.model.velocity * self.dt * sums["mobility"]


@pytest.fixture
def setting(monkeypatch):
    monkeypatch.setattr(physics, "_REGISTERED", dict(physics._REGISTERED))  # what is registered here stays here
    register(Membrane, Rubbing)
    grid = Grid((30, 40), 10.0, absorb=0)
    plain, spot = np.full(grid.shape, 2000.0), np.full(grid.shape, 2000.0)
    spot[18:22, 18:24] = 2200.0
    shot = Shot((50, 120), [(50.0, x) for x in range(0, 391, 30)], ricker(3.5, 0.01, 100), 0.01)
    return Membrane(spot, grid), Membrane(plain, grid), shot


def test_the_adjoint_is_the_transpose_of_the_loop(setting):
    model, _, shot = setting
    loop, rng = Loop(shot, Rubbing(model, 0.4 * largest_dt(model), 2, float)), np.random.default_rng(0)
    loop.sent, weights = rng.standard_normal(loop.sent.shape), rng.standard_normal((100, 14))
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    adjoint, arrived = Adjoint(loop, weights), 0.0
    for step in reversed(range(loop.steps)):
        back = loop.propagator.mobility * loop.propagator.carried(adjoint.back_to(step + 1))
        arrived += float(loop.sent[step] @ back[loop.sources])
    assert np.vdot(loop.data(), weights) == pytest.approx(arrived, rel=1e-11)


def test_an_operator_of_what_is_sent_has_its_exact_transpose(setting, monkeypatch):
    model, _, shot = setting
    sending, rng = modelling(shot, model, dt=0.002, dtype=float), np.random.default_rng(3)
    wavelet, data = rng.standard_normal(sending.shape[1]), rng.standard_normal(sending.shape[0])
    assert data @ (sending @ wavelet) == pytest.approx((sending.T @ data) @ wavelet, rel=1e-11)
    with monkeypatch.context() as changed:
        changed.setattr(Rubbing, "impulses", lambda self, density, kinds: 2 * density, raising=False)
        with pytest.raises(WaveError, match="give their physics `impulses_transposed`"):
            modelling(shot, model, dt=0.002, dtype=float).T @ data
    monkeypatch.delattr(Rubbing, "arrive")
    with pytest.raises(WaveError, match="give their physics `arrive`"):
        sending.T @ data


@pytest.mark.slow
def test_a_gradient_is_that_of_finite_differences(setting):
    true, guess, shot = setting
    shot = shot.with_data(simulate(shot, true))
    change = np.random.default_rng(1).standard_normal(guess.grid.shape)

    def misfit(size):
        moved = Membrane(guess.velocity + size * change, guess.grid)
        return 0.5 * np.sum((simulate(shot, moved, dt=0.002) - shot.data) ** 2)

    slope = (misfit(0.01) - misfit(-0.01)) / 0.02
    result = gradient(shot, guess, dt=0.002, budget="100kB")
    assert np.vdot(result.gradient, change) == pytest.approx(slope, rel=1e-6)
    assert result.misfit == pytest.approx(misfit(0.0)) and result.gradient[18:22, 18:24].mean() < 0


def test_an_image_is_the_same_in_every_budget(setting):
    true, smooth, shot = setting
    shot, moments = shot.with_data(simulate(shot, true) - simulate(shot, smooth)), []
    roomy = migrate(shot, smooth, budget="100MB", condition=lambda source, receiver, step: moments.append(step))
    tight = migrate(shot, smooth, budget="100kB")
    assert np.abs(roomy.image[15:25, 15:27]).max() > 0 and np.array_equal(roomy.image, tight.image)
    assert len(moments) == -(-roomy.result.plan.steps // roomy.every)
