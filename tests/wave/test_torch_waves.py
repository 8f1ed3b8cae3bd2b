"""Waves under autograd: the same data and derivatives as without it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.wave import inversion_setups

from forebay.errors import WaveError
from forebay.wave import DensityModel, ElasticModel, TTIModel, ViscoModel, VTIModel, gradient, ricker, simulate
from forebay.wave.inversion.unknowns import names_of

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


KINDS = {
    DensityModel: lambda values: (values, 1000.0 + 0.3 * (values - 2000.0)),
    VTIModel: lambda values: (values, 0.0 * values + 0.15, 0.0 * values + 0.05),
    ViscoModel: lambda values: (values, 0.0 * values + 0.03),
    ElasticModel: lambda values: (values, 0.55 * values, 1000.0 + 0.3 * (values - 2000.0)),
}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS])
def test_waves_of_every_kind_have_the_derivatives_of_the_functions(kind, shot):
    arrays = KINDS[kind](inversion_setups.start().velocity)
    about = {"frequency": 10.0} if kind is ViscoModel else {}
    model = kind(*arrays, inversion_setups.GRID, **about)
    samples, options = int(0.4 / shot.dt), {"dtype": np.float64}
    silence = np.zeros((samples, len(shot.receivers)))
    shot = replace(shot, wavelet=ricker(8.0, shot.dt, samples), data=silence)
    tensors = {name: tensor(values, requires_grad=True) for name, values in zip(names_of(model), arrays, strict=True)}
    data = propagate(tensors, inversion_setups.GRID, shot, budget="64MB", **about, **options)
    assert np.array_equal(data.detach().numpy(), simulate(shot, model, **options))
    (0.5 * (data - torch.tensor(shot.data)).square().sum()).backward()
    expected = gradient(shot, model, **options).gradient
    assert all(np.array_equal(own.grad.numpy(), expected[name]) for name, own in tensors.items())

    last = tensors.popitem()  # without a gradient of its own
    for own in tensors.values():
        own.grad = None
    held = {**tensors, last[0]: last[1].detach()}
    propagate(held, inversion_setups.GRID, shot, budget="64MB", **about, **options).sum().backward()
    assert all(own.grad is not None for own in tensors.values()) and held[last[0]].grad is None


@pytest.mark.slow
def test_angles_have_no_derivative_and_others_have_theirs(shot):
    speed = inversion_setups.start().velocity
    arrays = {"velocity": speed, "epsilon": 0.0 * speed + 0.15, "delta": 0.0 * speed + 0.05}
    model = TTIModel(**arrays, grid=inversion_setups.GRID, tilt=0.0 * speed + 0.4)
    samples, options = int(0.4 / shot.dt), {"dtype": np.float64, "budget": "64MB"}
    silence = np.zeros((samples, len(shot.receivers)))
    shot = replace(shot, wavelet=ricker(7.0, shot.dt, samples), data=silence)
    tensors = {name: tensor(values, requires_grad=True) for name, values in arrays.items()}
    angle = {"tilt": tensor(model.tilt)}
    (0.5 * propagate(tensors | angle, inversion_setups.GRID, shot, **options).square().sum()).backward()
    expected = gradient(shot, model, **options).gradient
    assert all(np.array_equal(own.grad.numpy(), expected[name]) for name, own in tensors.items())
    held = {name: own.detach() for name, own in tensors.items()}
    assert propagate(
        {"tilt": angle["tilt"].int()} | held, inversion_setups.GRID, shot, dtype=np.float64
    ).is_floating_point()
    angle["tilt"].requires_grad_()
    with pytest.raises(WaveError, match=r"tilt requires a gradient, and angles have none: give tilt.detach\(\)"):
        propagate(tensors | angle, inversion_setups.GRID, shot, **options)


def test_a_model_that_is_none_is_refused(shot):
    with pytest.raises(
        WaveError, match="a model of velocity, rho: give a velocity, or all of velocity; velocity, density"
    ):
        propagate({"velocity": tensor(), "rho": tensor()}, inversion_setups.GRID, shot)
    with pytest.raises(WaveError, match="frequency: give it beside an attenuation"):
        propagate({"velocity": tensor(), "attenuation": tensor()}, inversion_setups.GRID, shot)
    with pytest.raises(WaveError, match="attenuation of type float: give a tensor of the grid's shape"):
        propagate({"velocity": tensor(), "attenuation": 0.02}, inversion_setups.GRID, shot, frequency=10.0)


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
