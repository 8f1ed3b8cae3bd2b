"""Devito as the oracle: the same equations from another hand, with our averages of the medium."""

import os
from itertools import combinations_with_replacement

import numpy as np
import pytest
from tests.wave.elastic_setups import random_rock

from forebay.wave import Elastic, largest_dt

os.environ.setdefault("DEVITO_LOGGING", "ERROR")
devito = pytest.importorskip("devito")

STEPS = 500


def operator(propagator, shape, inner):
    """Write the step in Devito's words: fields by name, and what takes them a step further."""
    axes = "zyx"[-len(shape) :] if len(shape) == 3 else "zx"
    spacing = propagator.model.grid.spacing
    grid = devito.Grid(
        shape=shape, extent=tuple((n - 1) * h for n, h in zip(shape, spacing, strict=True)), dtype=np.float32
    )
    dims = dict(zip(axes, grid.dimensions, strict=True))

    def place(letters):
        return tuple(dims[letter] for letter in letters) if len(set(letters)) == len(letters) else devito.NODE

    def along(field, letter):
        return getattr(field, f"d{dims[letter].name}")

    def function(name, letters, values):
        found = devito.Function(name=name, grid=grid, space_order=0, staggered=place(letters))
        found.data[:] = values
        return found

    pairs = [one + other for one, other in combinations_with_replacement(axes, 2)]
    fields = {
        name[1:]: devito.TimeFunction(name=name, grid=grid, space_order=8, time_order=1, staggered=place(name[1:]))
        for name in (*propagator.velocities, *propagator.stresses)
    }
    medium = {name: function(name, name[1:] if name[0] in "bm" and name != "mu" else "zz", values[inner])
              for name, values in propagator.medium.items()}  # fmt: skip
    layers, equations = propagator.layers, []

    def stretched(slope, letter, letters, half):
        """Add the memory of a derivative along an axis to it; it lies where the field of the letters does."""
        axis, name = axes.index(letter), f"{letter}_{letters}_{len(equations)}"
        a, b = (
            function(f"{kind}_{name}", letters, np.broadcast_to(np.expand_dims(values[half][inner[axis]], [
                other for other in range(len(axes)) if other != axis]), shape))
            for kind, values in (("a", layers.a[axis]), ("b", layers.b[axis]))
        )  # fmt: skip
        memory = devito.TimeFunction(name=f"m_{name}", grid=grid, space_order=0, time_order=1, staggered=place(letters))
        equations.append(devito.Eq(memory.forward, b * memory + a * slope))
        return slope + memory.forward

    fading = {}
    for letters in (*axes, *pairs):
        half = [int(letter in letters and len(set(letters)) == len(letters)) for letter in axes]
        profiles = [layers.g[axis][at][inner[axis]] for axis, at in enumerate(half)]
        fading[letters] = function(f"g_{letters}", letters, np.prod(np.meshgrid(*profiles, indexing="ij"), axis=0))

    def advanced(letters, rate):
        g = fading[letters]
        return devito.Eq(fields[letters].forward, g * (g * fields[letters] + rate))

    for one in axes:
        push = sum(
            stretched(along(fields["".join(sorted(one + other, key=axes.index))], other), other, one, int(one == other))
            for other in axes
        )
        equations.append(advanced(one, medium[f"b{one}"] * push))
    moved = {one: fields[one].forward for one in axes}
    strains = {one: stretched(along(moved[one], one), one, one + one, 0) for one in axes}
    for pair in pairs:
        one, other = pair
        if one == other:
            rate = medium["lam"] * sum(strains.values()) + 2 * medium["mu"] * strains[one]
        else:
            rate = medium[f"m{pair}"] * (
                stretched(along(moved[one], other), other, pair, 1) + stretched(along(moved[other], one), one, pair, 1)
            )
        equations.append(advanced(pair, rate))
    return fields, devito.Operator(equations)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(44, 50), (26, 28, 30)], ids=["2-D", "3-D"])
def test_fields_agree_after_many_steps(shape):
    model = random_rock(shape, absorb=10)
    propagator = Elastic(model, 0.9 * largest_dt(model))
    inner = (slice(propagator.halo, -propagator.halo),) * len(shape)
    computed = tuple(points - 2 * propagator.halo for points in model.grid.fields(propagator.halo))
    fields, step = operator(propagator, computed, inner)

    distance = sum(
        ((place - points / 3) / 4.0) ** 2 for place, points in zip(np.indices(computed), computed, strict=True)
    )
    pulse = np.exp(-distance).astype(np.float32)
    state, silent = propagator.zeros(), propagator.antenna([model.grid.origin], ["explosion"])
    for name in propagator.stresses[: len(shape)]:
        state[name][inner] = fields[name[1:]].data[0] = pulse
    step.apply(time_m=0, time_M=STEPS - 1)
    for _ in range(STEPS):
        state = propagator.step(state, silent, np.zeros(1, np.float32))

    for name, field in fields.items():
        theirs, ours = field.data[STEPS % 2], state[("v" if len(name) == 1 else "t") + name][inner]
        assert np.abs(ours).max() > 0  # something still moves
        assert np.linalg.norm(ours - theirs) < 1e-4 * np.linalg.norm(theirs)
