"""Waves in networks and losses of one's own: modelling that autograd of PyTorch differentiates, inside a budget."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from forebay import engine
from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import AcousticModel, DensityModel, ElasticModel, VTIModel
from forebay.wave.earth.tilted import ANGLES, TTIModel
from forebay.wave.gradient import Sensitivity
from forebay.wave.imaging import check_every
from forebay.wave.inversion.unknowns import names_of, told_by
from forebay.wave.loop import prepare
from forebay.wave.physics import EarthModel
from forebay.wave.simulate import simulate
from forebay.wave.survey.shot import Shot
from forebay.wave.visco.model import ViscoModel

KINDS: tuple[Any, ...] = (AcousticModel, DensityModel, VTIModel, ViscoModel, ElasticModel)
MODELS: dict[frozenset[str], Any] = {frozenset(names_of(kind)): kind for kind in KINDS}
MODELS |= {frozenset((*names_of(TTIModel), *ANGLES[:count])): TTIModel for count in (1, 2)}
"""The types of models by the names of their arrays."""


def propagate(
    velocity: Tensor | Mapping[str, Tensor],
    grid: Grid,
    shot: Shot,
    *,
    max_vel: float | None = None,
    frequency: float | None = None,
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
    every: int = 1,
    **reversal: Any,
) -> Tensor:
    """Return what the receivers of a shot hear, as a tensor beside the model's that autograd can differentiate.

    From the forward to the backward pass, what the latter needs waits inside the budget. A second backward pass through
    the same data is refused: model them again.

    Parameters
    ----------
    velocity
        Metres per second, a tensor of the grid's shape, on the CPU or a GPU. For other waves than those of an
        `AcousticModel` such tensors by name: "velocity" and "density" of a `DensityModel`, "velocity", "epsilon" and
        "delta" of a `VTIModel`, these with "tilt", and "azimuth" in 3-D, of a `TTIModel`, "velocity" and "attenuation"
        of a `ViscoModel`, "vp", "vs" and "rho" of an `ElasticModel`. Each may have a gradient or not, but for angles,
        which have none.
    grid, max_vel, frequency
        As for the model; a `ViscoModel` alone has a frequency. With `max_vel` layers do not depend on the velocities,
        and time steps not on them either where densities are even; where they vary, give `dt` for steps that stay the
        same.
    shot
        Sources, wavelet and receivers; its data are not looked at.
    dt, order, dtype, every
        As for `gradient`.
    **reversal
        For `forebay.reverse`: `budget`, `codec`, `schedule`, `plan`, `costs`, `directory`, ...

    Examples
    --------
    >>> from forebay.wave import ricker
    >>> velocity = torch.full((40, 50), 2000.0, requires_grad=True)
    >>> shot = Shot((50, 250), [(350, x) for x in range(0, 500, 50)], ricker(15, 0.004, 100), dt=0.004)
    >>> data = propagate(velocity, Grid((40, 50), spacing=10.0), shot, budget="8MB")
    >>> data.square().sum().backward()
    >>> data.shape, bool(velocity.grad.abs().max() > 0)
    (torch.Size([100, 10]), True)
    """
    check_every(every)
    tensors = dict(velocity) if isinstance(velocity, Mapping) else {"velocity": velocity}
    if frozenset(tensors) not in MODELS:
        known = "; ".join(", ".join(name for name in told_by(kind) if name in names) for names, kind in MODELS.items())
        raise WaveError(f"a model of {', '.join(map(str, tensors)) or 'nothing'}: give a velocity, or all of {known}")
    kinds = {name: type(own) for name, own in tensors.items()}
    if wrong := [name for name, kind in kinds.items() if not issubclass(kind, Tensor)]:
        raise WaveError(f"{wrong[0]} of type {kinds[wrong[0]].__name__}: give a tensor of the grid's shape")
    if turned := [name for name in ANGLES if name in tensors and tensors[name].requires_grad]:
        raise WaveError(f"{turned[0]} requires a gradient, and angles have none: give {turned[0]}.detach()")
    tensors = dict(sorted(tensors.items(), key=lambda each: each[0] in ANGLES))  # data are of the type of the first
    if (frequency is None) == ("attenuation" in tensors):
        raise WaveError("frequency: give it beside an attenuation, and nowhere else")
    stepping = {"dt": dt, "order": order, "dtype": dtype}
    about = {"grid": grid, "max_vel": max_vel} | ({} if frequency is None else {"frequency": frequency})
    if not (any(tensor.requires_grad for tensor in tensors.values()) and torch.is_grad_enabled()):
        return _beside(simulate(shot, _model(tensors, about), **stepping), next(iter(tensors.values())))
    names, values = tuple(tensors), tuple(tensors.values())
    return _Propagated.apply(names, about, shot, stepping, every, reversal, *values)  # type: ignore[no-any-return, no-untyped-call]


class _Propagated(torch.autograd.Function):
    """The tensors of a model to data."""

    @staticmethod
    def forward(
        ctx: Any,
        names: tuple[str, ...],
        about: Any,
        shot: Shot,
        stepping: Any,
        every: int,
        reversal: Any,
        *tensors: Tensor,
    ) -> Tensor:
        """Run to the turn and wait there."""
        model = _model(dict(zip(names, tensors, strict=True)), about)
        loop = prepare(shot, model, **stepping, every=every)
        sensitivity = Sensitivity(loop, every)
        waiting = engine.prepare(loop.forward, loop.propagator.zeros(), loop.steps, **sensitivity.options | reversal)
        last = waiting.forward(lambda final: {name: final[name].copy() for name in loop.propagator.sensitive_fields})
        ctx.waiting = waiting, sensitivity, last
        ctx.like = {name: tensor.detach() for name, tensor in zip(names, tensors, strict=True)}
        return _beside(loop.data(), tensors[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Go back from the turn."""
        if ctx.waiting is None:
            raise WaveError("data that were differentiated before: model them again, by propagate(...)")
        (waiting, sensitivity, last), ctx.waiting = ctx.waiting, None
        with waiting:
            sensitivity.start_back(slope.cpu().numpy(), last)
            waiting.backward(sensitivity.backward, False)
        owed = sensitivity.end("velocity")
        by_name = owed if isinstance(owed, dict) else {"velocity": owed}
        wanted = zip(ctx.like.items(), ctx.needs_input_grad[-len(ctx.like) :], strict=True)
        return *[None] * 6, *(
            torch.as_tensor(by_name[name]).to(like) if needed else None for (name, like), needed in wanted
        )


def _model(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> EarthModel:
    """Return a model of the values that tensors have now, and of what it has beside them."""
    values = {name: tensor.detach() for name, tensor in tensors.items()}
    arrays = {name: own if own.is_cuda else own.numpy() for name, own in values.items()}
    return MODELS[frozenset(arrays)](**arrays, **about)  # type: ignore[no-any-return]


def _beside(data: Any, velocity: Tensor) -> Tensor:
    """Return data as a tensor where the velocity is, of its type."""
    return torch.as_tensor(data).to(velocity.detach())
