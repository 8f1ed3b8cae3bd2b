"""Waves under autograd: the same data and derivatives as without it."""

import numpy as np
import pytest
from tests.wave import inversion_setups

from forebay.errors import WaveError
from forebay.wave import gradient, simulate

torch = pytest.importorskip("torch")

from forebay.wave.torch import propagate  # noqa: E402


@pytest.fixture(scope="module")
def shot():
    return inversion_setups.shots(1, dtype=np.float64)[0]


def tensor(values=None, **options):
    return torch.tensor(inversion_setups.start().velocity if values is None else values, **options)


def test_data_and_derivatives_are_those_of_the_functions(shot):
    velocity, model = tensor(requires_grad=True), inversion_setups.start()
    data = propagate(velocity, inversion_setups.GRID, shot, dtype=np.float64, budget="32MB")
    assert np.array_equal(data.detach().numpy(), simulate(shot, model, dtype=np.float64))
    (0.5 * (data - torch.tensor(shot.data)).square().sum()).backward()
    assert np.array_equal(velocity.grad.numpy(), gradient(shot, model, dtype=np.float64).gradient)


def test_it_composes_with_what_comes_before_and_after(shot):
    depth, towards = tensor([1.0], dtype=torch.float64, requires_grad=True), np.linspace(0, 1, 22)[:, None]
    observed = torch.tensor(shot.data)

    def loss(slope):
        velocity = 2000.0 + 50.0 * slope * torch.tensor(towards).expand(22, 26)
        data = propagate(velocity, inversion_setups.GRID, shot, max_vel=2600.0, dtype=np.float64, budget="4MB")
        return (data - observed).square().sum().sqrt()

    loss(depth).backward()
    size = 1e-3
    with torch.no_grad():
        ahead, behind = (loss(depth.detach() + change) for change in (size, -size))
    assert float(depth.grad) == pytest.approx(float(ahead - behind) / (2 * size), rel=1e-5)


def test_nothing_waits_where_nothing_is_differentiated(shot, monkeypatch):
    from forebay import engine

    monkeypatch.setattr(engine, "prepare", None)
    with torch.no_grad():
        assert not propagate(tensor(requires_grad=True), inversion_setups.GRID, shot).requires_grad
    assert propagate(tensor(dtype=torch.float32), inversion_setups.GRID, shot).dtype == torch.float32


def test_a_second_way_back_is_refused(shot):
    data = propagate(tensor(requires_grad=True), inversion_setups.GRID, shot, budget="32MB")
    data.sum().backward(retain_graph=True)
    with pytest.raises(WaveError, match="model them again"):
        data.sum().backward()
